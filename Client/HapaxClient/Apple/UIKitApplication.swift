#if HAPAX_APPLE_STUBS
import AppleStubs
import HapaxClient
#elseif canImport(UIKit) && !os(watchOS)
import UIKit
#endif

#if HAPAX_APPLE_STUBS || (canImport(UIKit) && !os(watchOS))
import Foundation
import HapaxModel

extension EventClient {
    /// Connects the client with a UIKit app, whose notifications it follows until ``shutdown(within:)``. Call it once, as early as
    /// `application(_:didFinishLaunchingWithOptions:)`.
    ///
    /// The app is handed in because an app extension has none: there, send the signals of the extension's own life to ``handle(_:)``.
    ///
    /// - Parameter launchedInBackground: Whether the system launched the app without showing it (R47, R49). nil asks the application's
    ///   state. An app with scenes is in the background while it launches, however it was launched: whether a scene is shown is looked at two
    ///   seconds later, and until then its events say nothing of the background.
    @MainActor
    public func attach(_ application: UIApplication, launchedInBackground: Bool? = nil) {
        attach(application, launchedInBackground: launchedInBackground, hasScenes: UIKitApplication.hasScenes)
    }

    @MainActor
    func attach(_ application: UIApplication, launchedInBackground: Bool?, hasScenes: Bool) {
        let isInBackground = launchedInBackground ?? (application.applicationState == .background)
        let adapter = UIKitApplication(application, isInBackground: isInBackground, client: self)
        if hasScenes && isInBackground && launchedInBackground == nil {
            attach(adapter, decidingAfter: UIKitApplication.sceneTime) { application.applicationState == .background }
        } else {
            attach(adapter)
        }
        adapter.follow()
        // What was notified before is not notified again.
        if application.applicationState == .active { handle(.didBecomeActive) }
    }
}

/// Forwards what UIKit notifies, and asks UIKit for time in the background. Decides nothing.
///
/// The client keeps it. UIKit posts its notifications on the main thread and waits for them, so that the assertion is begun before the app
/// leaves the foreground (R30). Of `UIApplication` only what any thread may call is used here: whoever waits on the main thread for the
/// client never waits for itself (D7).
final class UIKitApplication: ApplicationAdapter {
    /// Asked on the main actor, at the start.
    let isInBackground: Bool
    private let application: UIApplication
    private let notifications: LifecycleNotifications

    /// In the foreground UIKit gives the greatest number there is.
    private static let maximumRemainingSeconds = 3_600.0

    /// UIKit connects the first scene of an app that is shown, and notifies that it enters the foreground, only behind
    /// `application(_:didFinishLaunchingWithOptions:)` (https://developer.apple.com/documentation/uikit/about-the-app-launch-sequence).
    static let sceneTime: Duration = .seconds(2)

    /// Whether the app's life is its scenes' (https://developer.apple.com/documentation/bundleresources/information-property-list/uiapplicationscenemanifest).
    static var hasScenes: Bool { Bundle.main.object(forInfoDictionaryKey: "UIApplicationSceneManifest") != nil }

    @MainActor
    init(_ application: UIApplication, isInBackground: Bool, client: EventClient) {
        self.application = application
        self.isInBackground = isInBackground
        notifications = LifecycleNotifications(for: client)
    }

    func follow() {
        notifications.follow(
            [
                (UIApplication.willEnterForegroundNotification, .willEnterForeground),
                (UIApplication.didBecomeActiveNotification, .didBecomeActive),
                (UIApplication.willResignActiveNotification, .willResignActive),
                (UIApplication.didEnterBackgroundNotification, .didEnterBackground),
                (UIApplication.willTerminateNotification, .willTerminate),
            ], of: application)
    }

    func detach() { notifications.end() }

    // MARK: - Time in the background

    var remainingBackgroundTime: Duration {
        .seconds(min(max(application.backgroundTimeRemaining, 0), Self.maximumRemainingSeconds))
    }

    func beginAssertion() -> Int? {
        let begun = Locked(UIBackgroundTaskIdentifier.invalid)
        let identifier = application.beginBackgroundTask(withName: "hapax.upload") { [weak notifications, application] in
            if let client = notifications?.client { return client.handle(.backgroundTimeExpired) }
            // Nobody is left to give it back, and an app that keeps one is killed.
            application.endBackgroundTask(begun.withLock { $0 })
        }
        begun.withLock { $0 = identifier }
        return identifier == .invalid ? nil : identifier.rawValue
    }

    func endAssertion(_ assertion: Int) {
        application.endBackgroundTask(UIBackgroundTaskIdentifier(rawValue: assertion))
    }
}
#endif
