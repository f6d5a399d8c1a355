/// What happens to an app, in the words of the platforms' own notifications.
///
/// An adapter forwards them in the order in which they come, and decides nothing. Repeated, missing and out-of-order signals do no harm.
public enum LifecycleSignal: Hashable, Sendable {
    /// - Parameter inBackground: Whether the system launched the app without showing it (R47, R49).
    case didFinishLaunching(inBackground: Bool)
    case willEnterForeground
    case didBecomeActive
    case willResignActive
    case didEnterBackground
    case willTerminate
    /// The time granted in the background is over; the assertion must be given back now.
    case backgroundTimeExpired
}
