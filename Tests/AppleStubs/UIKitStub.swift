import Foundation

/// As much of UIKit as the adapter uses, with the signatures and isolation of the iOS 18 SDK.
@MainActor
public final class UIApplication {
    public enum State: Sendable { case active, inactive, background }

    public nonisolated static let didFinishLaunchingNotification = NSNotification.Name("UIApplicationDidFinishLaunchingNotification")
    public nonisolated static let didBecomeActiveNotification = NSNotification.Name("UIApplicationDidBecomeActiveNotification")
    public nonisolated static let willResignActiveNotification = NSNotification.Name("UIApplicationWillResignActiveNotification")
    public nonisolated static let didEnterBackgroundNotification = NSNotification.Name("UIApplicationDidEnterBackgroundNotification")
    public nonisolated static let willEnterForegroundNotification = NSNotification.Name("UIApplicationWillEnterForegroundNotification")
    public nonisolated static let willTerminateNotification = NSNotification.Name("UIApplicationWillTerminateNotification")

    public var applicationState = State.inactive

    /// What a test scripts and reads.
    public nonisolated let background = BackgroundTasks()

    public init() {}

    public nonisolated var backgroundTimeRemaining: TimeInterval { background.remaining }

    public nonisolated func beginBackgroundTask(
        withName name: String?, expirationHandler: (@MainActor @Sendable () -> Void)? = nil
    ) -> UIBackgroundTaskIdentifier {
        background.begin(expirationHandler)
    }

    public nonisolated func endBackgroundTask(_ identifier: UIBackgroundTaskIdentifier) {
        background.end(identifier)
    }
}

extension UIApplication {
    public struct LaunchOptionsKey: Hashable, Sendable {}
}

@MainActor
open class UIResponder {
    public init() {}
}

@MainActor
public protocol UIApplicationDelegate {
    func application(
        _ application: UIApplication, didFinishLaunchingWithOptions launchOptions: [UIApplication.LaunchOptionsKey: Any]?
    ) -> Bool
}

public struct UIBackgroundTaskIdentifier: RawRepresentable, Hashable, Sendable {
    public static let invalid = UIBackgroundTaskIdentifier(rawValue: 0)
    public let rawValue: Int
    public init(rawValue: Int) { self.rawValue = rawValue }
}
