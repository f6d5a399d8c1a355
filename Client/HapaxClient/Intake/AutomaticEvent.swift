import HapaxModel

/// The events that Hapax names itself (R42).
///
/// ``EventClient/handle(_:)`` tracks the first three. The last two are for whoever sees the user interface, through
/// ``EventClient/track(_:properties:)``.
public enum AutomaticEvent: String, Hashable, Sendable, CaseIterable {
    /// The app became active.
    case appStart = "$AppStart"
    /// It entered the background, ended, or was found to have ended.
    case appEnd = "$AppEnd"
    /// The system launched it without showing it.
    case appStartPassively = "$AppStartPassively"
    /// A screen was shown.
    case appViewScreen = "$AppViewScreen"
    /// Something was tapped or clicked.
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
