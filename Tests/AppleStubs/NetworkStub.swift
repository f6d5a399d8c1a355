import Dispatch
import HapaxModel

/// As much of Network and CoreTelephony as the network source uses.
public final class NWPathMonitor {
    public var pathUpdateHandler: (@Sendable (NWPath) -> Void)?

    public init() {}

    public func start(queue: DispatchQueue) {
        guard let handler = pathUpdateHandler else { return }
        System.shared.withLock { $0.handlers.append((queue, handler)) }
    }
}

public struct NWPath: Sendable {
    public enum Status: Sendable { case satisfied, unsatisfied, requiresConnection }

    public var status: Status
    public var interfaces: Set<NWInterface.InterfaceType>
    public var isExpensive: Bool

    public init(_ status: Status, _ interfaces: Set<NWInterface.InterfaceType> = [], isExpensive: Bool = false) {
        self.status = status
        self.interfaces = interfaces
        self.isExpensive = isExpensive
    }

    public func usesInterfaceType(_ type: NWInterface.InterfaceType) -> Bool { interfaces.contains(type) }
}

public enum NWInterface {
    public enum InterfaceType: Sendable { case other, wifi, cellular, wiredEthernet, loopback }
}

public final class CTTelephonyNetworkInfo {
    public init() {}
    public var dataServiceIdentifier: String? { "0000000100000001" }
    public var serviceCurrentRadioAccessTechnology: [String: String]? {
        System.shared.withLock { $0.technology }.map { ["0000000100000001": $0] }
    }
}

public let CTRadioAccessTechnologyGPRS = "CTRadioAccessTechnologyGPRS"
public let CTRadioAccessTechnologyEdge = "CTRadioAccessTechnologyEdge"
public let CTRadioAccessTechnologyCDMA1x = "CTRadioAccessTechnologyCDMA1x"
public let CTRadioAccessTechnologyWCDMA = "CTRadioAccessTechnologyWCDMA"
public let CTRadioAccessTechnologyHSDPA = "CTRadioAccessTechnologyHSDPA"
public let CTRadioAccessTechnologyHSUPA = "CTRadioAccessTechnologyHSUPA"
public let CTRadioAccessTechnologyCDMAEVDORev0 = "CTRadioAccessTechnologyCDMAEVDORev0"
public let CTRadioAccessTechnologyCDMAEVDORevA = "CTRadioAccessTechnologyCDMAEVDORevA"
public let CTRadioAccessTechnologyCDMAEVDORevB = "CTRadioAccessTechnologyCDMAEVDORevB"
public let CTRadioAccessTechnologyeHRPD = "CTRadioAccessTechnologyeHRPD"
public let CTRadioAccessTechnologyLTE = "CTRadioAccessTechnologyLTE"
public let CTRadioAccessTechnologyNR = "CTRadioAccessTechnologyNR"
public let CTRadioAccessTechnologyNRNSA = "CTRadioAccessTechnologyNRNSA"

/// The system's side of the network.
public struct System: Sendable {
    static let shared = Locked(System())
    var handlers: [(queue: DispatchQueue, handler: @Sendable (NWPath) -> Void)] = []
    var technology: String?

    /// Every monitor has been told when this returns.
    public static func changePath(_ path: NWPath, technology: String? = nil) {
        let handlers = shared.withLock { system in
            system.technology = technology
            return system.handlers
        }
        for (queue, handler) in handlers { queue.sync { handler(path) } }
    }
}
