/// What a device is connected by.
public enum NetworkType: String, Hashable, Sendable, CaseIterable {
    /// GSM and its kin: slow, and left out of the standard ``NetworkPolicy``.
    case cellular2G
    /// UMTS and its kin.
    case cellular3G
    /// LTE and its kin.
    case cellular4G
    /// 5G New Radio.
    case cellular5G
    /// A wireless local network.
    case wifi
    /// A cable, and whatever is not one of the others; a service's network.
    case wired
}

extension EventClient.Configuration {
    #if canImport(Network)
    static let standardNetwork: @Sendable () -> NetworkType? = { DeviceNetwork.shared.current }

    /// Apple's systems answer some milliseconds after they were first asked: the first upload comes later than that.
    static func prepareNetwork() { _ = DeviceNetwork.shared }
    #else
    static let standardNetwork: @Sendable () -> NetworkType? = { .wired }
    static func prepareNetwork() {}
    #endif
}

/// Over which networks events are uploaded without being asked (R24); a manual flush goes over any.
public typealias NetworkPolicy = Set<NetworkType>

extension NetworkPolicy {
    /// All but 2G.
    public static var standard: NetworkPolicy { [.cellular3G, .cellular4G, .cellular5G, .wifi, .wired] }
}
