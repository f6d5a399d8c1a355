import Foundation
import HapaxModel

/// An app's notifications, passed to a client as signals. The client is not kept.
package final class LifecycleNotifications: Sendable {
    private let held: Locked<WeakClient>
    private let subscriptions = Locked<[any NSObjectProtocol]>([])

    private struct WeakClient {
        weak var client: EventClient?
    }

    package init(for client: EventClient) {
        held = Locked(WeakClient(client: client))
    }

    deinit { end() }

    /// nil once nobody else keeps it.
    package var client: EventClient? { held.withLock { $0.client } }

    /// - Parameter application: Whose notifications are meant; nil for those of any.
    package func follow(_ signals: [(NSNotification.Name, LifecycleSignal)], of application: AnyObject?) {
        for (name, signal) in signals {
            // Without a queue of its own the block runs on the poster's thread, before the post returns: on termination the process ends then.
            let subscription = NotificationCenter.default.addObserver(forName: name, object: application, queue: nil) { [weak self] _ in
                self?.client?.handle(signal)
            }
            subscriptions.withLock { $0.append(subscription) }
        }
    }

    /// Calls back on the main thread when an application has launched, once.
    package static func whenLaunched<Application: AnyObject & Sendable>(
        _ name: NSNotification.Name, _ attach: @escaping @MainActor @Sendable (Application) -> Void
    ) {
        let subscription = Locked<(any NSObjectProtocol)?>(nil)
        let new = NotificationCenter.default.addObserver(forName: name, object: nil, queue: nil) { notification in
            guard let application = notification.object as? Application else { return }
            let ended = subscription.withLock { subscription in
                defer { subscription = nil }
                return subscription
            }
            if let ended { NotificationCenter.default.removeObserver(ended) }
            // UIKit and AppKit post it on the main thread.
            MainActor.assumeIsolated { attach(application) }
        }
        subscription.withLock { $0 = new }
    }

    package func end() {
        let ended = subscriptions.withLock { subscriptions in
            defer { subscriptions = [] }
            return subscriptions
        }
        for subscription in ended { NotificationCenter.default.removeObserver(subscription) }
    }
}
