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
        let adapter = AppKitApplication(application, client: self)
        attach(adapter)
        adapter.subscribe(.default)
        // What was notified before is not notified again.
        if application.isActive { handle(.didBecomeActive) }
    }
}

/// Forwards what AppKit notifies. Decides nothing. The client keeps it.
final class AppKitApplication: ApplicationAdapter {
    private let application: NSApplication
    private let client: Locked<WeakClient>
    private let subscriptions = Locked<[any NSObjectProtocol]>([])

    private struct WeakClient {
        weak var client: EventClient?
    }

    @MainActor
    init(_ application: NSApplication, client: EventClient) {
        self.application = application
        self.client = Locked(WeakClient(client: client))
    }

    deinit { detach() }

    func subscribe(_ center: NotificationCenter) {
        let signals: [(NSNotification.Name, LifecycleSignal)] = [
            (NSApplication.didBecomeActiveNotification, .didBecomeActive),
            (NSApplication.willResignActiveNotification, .willResignActive),
            (NSApplication.willTerminateNotification, .willTerminate),
        ]
        for (name, signal) in signals {
            // Without a queue of its own the block runs on the poster's thread, before the post returns: the process ends after it.
            let subscription = center.addObserver(forName: name, object: application, queue: nil) { [weak self] _ in
                self?.client.withLock { $0.client }?.handle(signal)
            }
            subscriptions.withLock { $0.append(subscription) }
        }
    }

    func detach() {
        let ended = subscriptions.withLock { subscriptions in
            defer { subscriptions = [] }
            return subscriptions
        }
        for subscription in ended { NotificationCenter.default.removeObserver(subscription) }
    }

    // MARK: - No background

    var isInBackground: Bool { false }
    var remainingBackgroundTime: Duration { .zero }
    func beginAssertion() -> Int? { nil }
    func endAssertion(_ assertion: Int) {}
}
#endif
