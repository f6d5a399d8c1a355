import HapaxModel

/// What every event of a client gets besides what its call says. Kept in ``Intake``, so that a change and an event never overlap (D16).
struct EventContext: Sendable {
    var identity: Identity { didSet { if identity != oldValue { join() } } }
    var consent = Consent.granted { didSet { if consent != oldValue { generation += 1 } } }
    /// Collected once (R57).
    var automatic: Properties { didSet { join() } }
    var common: Properties = [:] { didSet { join() } }
    /// Of an app; nil for a service.
    var session: AppSession? { didSet { if session?.id != oldValue?.id { join() } } }
    /// The screen that is shown, for what happens on it.
    var screenName: String? { didSet { if screenName != oldValue { join() } } }
    /// Launched by the system into the background and not seen since (R48).
    var isPassive = false { didSet { if isPassive != oldValue { join() } } }

    /// Everything an event's own properties are laid over: automatic, then common, then `$app_state`. Joined when it changes, so that an
    /// event only refers to it.
    private(set) var base: Properties = [:]
    /// The same as it will travel.
    private(set) var encodedBase = EncodedProperties.none
    /// Whom events concern that do not say it.
    private(set) var distinctID = ""
    /// Which version this is; another one after each change.
    private(set) var generation = 0

    /// What an event says itself, or the app's code for it. None says of an app that nobody has seen yet that it is not in the background
    /// (R48).
    func own(_ properties: Properties) -> Properties {
        guard isPassive else { return properties }
        var properties = properties
        properties[Self.appState] = nil
        return properties
    }

    /// The same for what was laid over the base, and may have been changed since.
    func markState(of properties: inout Properties) {
        if isPassive { properties[Self.appState] = "background" }
    }

    private static let appState = "$app_state"
    static let anonymousID = "$anonymous_id"
    static let sessionID = "$session_id"
    static let screenName = "$screen_name"

    init(identity: Identity, automatic: Properties = [:]) {
        self.identity = identity
        self.automatic = automatic
        join()
    }

    private mutating func join() {
        base = automatic.merging(common)
        if let session { base[Self.sessionID] = .string(session.id.description) }
        if identity.loginID != nil { base[Self.anonymousID] = .string(identity.anonymousID) }
        if let screenName { base[Self.screenName] = .string(screenName) }
        markState(of: &base)
        distinctID = identity.distinctID
        encodedBase = EncodedProperties(base)
        generation += 1
    }
}
