#if HAPAX_APPLE_STUBS
import AppleStubs
import HapaxClient
#elseif canImport(AppKit) && !targetEnvironment(macCatalyst)
import AppKit
#endif

#if HAPAX_APPLE_STUBS || (canImport(AppKit) && !targetEnvironment(macCatalyst))
import Foundation
import HapaxModel

extension EventClient {
    /// Connects the client with a Mac app, whose notifications it follows until ``shutdown(within:)``. Call it once, as early as
    /// `applicationDidFinishLaunching(_:)`.
    ///
    /// A session lasts from the app's first activation to its termination. A Mac app runs on while it is hidden or another app is in front:
    /// nothing freezes it, so that it has no background, needs no assertion, and uploads as before. An app that allows sudden termination
    /// is killed without notice: its `$AppEnd` is then recovered at the next start.
    @MainActor
    public func attach(_ application: NSApplication) {
        let adapter = AppKitApplication(client: self)
        attach(adapter)
        adapter.follow(application)
        // What was notified before is not notified again.
        if application.isActive { handle(.didBecomeActive) }
    }
}

/// Forwards what AppKit notifies. Decides nothing. The client keeps it.
final class AppKitApplication: ApplicationAdapter {
    private let notifications: LifecycleNotifications

    init(client: EventClient) {
        notifications = LifecycleNotifications(for: client)
    }

    @MainActor
    func follow(_ application: NSApplication) {
        notifications.follow(
            [
                (NSApplication.didBecomeActiveNotification, .didBecomeActive),
                (NSApplication.willResignActiveNotification, .willResignActive),
                (NSApplication.willTerminateNotification, .willTerminate),
            ], of: application)
    }

    func detach() { notifications.end() }

    // MARK: - No background

    var isInBackground: Bool { false }
    var remainingBackgroundTime: Duration { .zero }
    func beginAssertion() -> Int? { nil }
    func endAssertion(_ assertion: Int) {}
}
#endif
