#if HAPAX_APPLE_STUBS
import AppleStubs
import HapaxClient
#elseif os(watchOS)
import WatchKit
#endif

#if HAPAX_APPLE_STUBS || os(watchOS)
import Foundation
import HapaxModel

extension EventClient {
    #if os(watchOS)
    /// Connects the client with a watch's app, whose notifications it follows until ``shutdown(within:)``: call it once, in `App.init`.
    ///
    /// The client uploads while the app is shown. A watch gives no time in the background that a request could ask for: what waits then is sent
    /// when the app is shown again.
    public func attach() { followWatch() }
    #endif

    func followWatch() {
        let adapter = WatchKitApplication(client: self)
        attach(adapter, decidingAfter: WatchKitApplication.launchTime) { WKApplication.shared().applicationState == .background }
        adapter.follow()
    }
}

/// Forwards what WatchKit notifies. Decides nothing. The client keeps it.
final class WatchKitApplication: ApplicationAdapter {
    private let notifications: LifecycleNotifications

    /// An app is in the background while it launches, however it was launched: whether it is shown is looked at so much later.
    static let launchTime: Duration = .seconds(2)

    init(client: EventClient) { notifications = LifecycleNotifications(for: client) }

    /// A process has one application, which is not there yet.
    func follow() {
        notifications.follow(
            [
                (WKApplication.willEnterForegroundNotification, .willEnterForeground),
                (WKApplication.didBecomeActiveNotification, .didBecomeActive),
                (WKApplication.willResignActiveNotification, .willResignActive),
                (WKApplication.didEnterBackgroundNotification, .didEnterBackground),
            ], of: nil)
    }

    func detach() { notifications.end() }

    // MARK: - No time in the background

    var isInBackground: Bool { true }
    var remainingBackgroundTime: Duration { .zero }
    func beginAssertion() -> Int? { nil }
    func endAssertion(_ assertion: Int) {}
}
#endif
