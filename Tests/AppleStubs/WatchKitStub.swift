import Foundation

public enum WKApplicationState: Sendable { case active, inactive, background }

/// As much of WatchKit as the adapter uses.
@MainActor
public final class WKApplication {
    public nonisolated static let didBecomeActiveNotification = NSNotification.Name("WKApplicationDidBecomeActiveNotification")
    public nonisolated static let willResignActiveNotification = NSNotification.Name("WKApplicationWillResignActiveNotification")
    public nonisolated static let didEnterBackgroundNotification = NSNotification.Name("WKApplicationDidEnterBackgroundNotification")
    public nonisolated static let willEnterForegroundNotification = NSNotification.Name("WKApplicationWillEnterForegroundNotification")

    private static let one = WKApplication()
    public static func shared() -> WKApplication { one }

    public var applicationState = WKApplicationState.background
}
