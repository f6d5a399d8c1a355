#if HAPAX_APPLE_STUBS
import AppleStubs
import HapaxClient
#elseif canImport(Network)
import Network
#if os(iOS) && !targetEnvironment(macCatalyst)
import CoreTelephony
#endif
#endif

#if HAPAX_APPLE_STUBS || canImport(Network)
import Dispatch
import HapaxModel

/// What the device is connected by, as the system reports; the default of ``EventClient/Configuration/network`` on Apple's platforms.
///
/// The path says whether there is a network and of what kind; only the telephony framework distinguishes 3G from 5G. Its answer is taken when the
/// path changes. Until the system's first report, some milliseconds after the start, there is none.
final class DeviceNetwork: Sendable {
    /// One monitor for all clients of a process; it lives as long as that.
    static let shared = DeviceNetwork()

    private let type = Locked<NetworkType?>(nil)
    private let monitor: Locked<NWPathMonitor>

    var current: NetworkType? { type.withLock { $0 } }

    init() {
        let monitor = NWPathMonitor()
        monitor.pathUpdateHandler = { [type] path in
            let current = Self.type(of: path)
            type.withLock { $0 = current }
        }
        monitor.start(queue: DispatchQueue(label: "hapax.network"))
        self.monitor = Locked(monitor)
    }

    private static func type(of path: NWPath) -> NetworkType? {
        guard path.status == .satisfied else { return nil }
        if path.usesInterfaceType(.wifi) { return .wifi }
        if path.usesInterfaceType(.wiredEthernet) { return .wired }
        if path.usesInterfaceType(.cellular) { return cellular }
        // A tunnel that does not say what is below it: what costs money counts as cellular.
        return path.isExpensive ? .cellular4G : .wired
    }

    private static var cellular: NetworkType {
        #if (os(iOS) && !targetEnvironment(macCatalyst)) || HAPAX_APPLE_STUBS
        let telephony = CTTelephonyNetworkInfo()
        let service = telephony.dataServiceIdentifier ?? ""
        return generation(telephony.serviceCurrentRadioAccessTechnology?[service])
        #else
        return .cellular4G
        #endif
    }

    #if (os(iOS) && !targetEnvironment(macCatalyst)) || HAPAX_APPLE_STUBS
    /// - Parameter technology: nil if the system does not say; then, as for one that is newer than this list, 4G is assumed.
    static func generation(_ technology: String?) -> NetworkType {
        switch technology {
        case CTRadioAccessTechnologyGPRS, CTRadioAccessTechnologyEdge, CTRadioAccessTechnologyCDMA1x: .cellular2G
        case CTRadioAccessTechnologyWCDMA, CTRadioAccessTechnologyHSDPA, CTRadioAccessTechnologyHSUPA,
            CTRadioAccessTechnologyCDMAEVDORev0, CTRadioAccessTechnologyCDMAEVDORevA, CTRadioAccessTechnologyCDMAEVDORevB,
            CTRadioAccessTechnologyeHRPD:
            .cellular3G
        case CTRadioAccessTechnologyNR, CTRadioAccessTechnologyNRNSA: .cellular5G
        default: .cellular4G
        }
    }
    #endif
}
#endif
