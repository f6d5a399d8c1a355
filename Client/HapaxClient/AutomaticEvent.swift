import HapaxModel

/// The events that Hapax names itself (R42).
///
/// ``EventClient/handle(_:)`` tracks the first three. The last two are for whoever sees the user interface, through
/// ``EventClient/track(_:properties:)``.
public enum AutomaticEvent: String, Hashable, Sendable, CaseIterable {
    case appStart = "$AppStart"
    case appEnd = "$AppEnd"
    case appStartPassively = "$AppStartPassively"
    case appViewScreen = "$AppViewScreen"
    case appClick = "$AppClick"
}

extension EventClient {
    /// Takes an event that has a name of ours, as ``track(_:properties:id:time:distinctID:)`` does; what may be lost is said there.
    ///
    /// - Parameter properties: Which screen, which button: that is yours to name.
    @discardableResult
    public func track(_ event: AutomaticEvent, properties: Properties = [:]) -> EventID? {
        track(event.rawValue, properties: properties)
    }
}
