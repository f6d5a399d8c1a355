/// What happens to an app, in the words of the platforms' own notifications.
///
/// An adapter forwards them in the order in which they come, and decides nothing. Repeated, missing and out-of-order signals do no harm.
public enum LifecycleSignal: Hashable, Sendable {
    /// - Parameter inBackground: Whether the system launched the app without showing it (R47, R49).
    case didFinishLaunching(inBackground: Bool)
    /// It is about to be shown again.
    case willEnterForeground
    /// It is shown and takes input: `$AppStart`, timers run, periodic uploads begin.
    case didBecomeActive
    /// It stops taking input for a moment, or on its way to the background.
    case willResignActive
    /// It is no longer shown: `$AppEnd`, an upload within the granted time, timers pause.
    case didEnterBackground
    /// The process is about to end: what was tracked is stored first.
    case willTerminate
    /// The time granted in the background is over; the assertion must be given back now.
    case backgroundTimeExpired
}
