import Foundation
import HapaxModel

/// The system's side of background tasks.
public final class BackgroundTasks: Sendable {
    private struct State {
        /// As UIKit says in the foreground.
        var remaining = TimeInterval.greatestFiniteMagnitude
        var isGranting = true
        var begun = 0
        var ended: [Int] = []
        var handlers: [Int: @MainActor @Sendable () -> Void] = [:]
        var waiters: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }

    private let state = Locked(State())

    public var remaining: TimeInterval {
        get { state.withLock { $0.remaining } }
        set { state.withLock { $0.remaining = newValue } }
    }

    public var isGranting: Bool {
        get { state.withLock { $0.isGranting } }
        set { state.withLock { $0.isGranting = newValue } }
    }

    public var begun: Int { state.withLock { $0.begun } }
    /// In the order they were given back.
    public var ended: [Int] { state.withLock { $0.ended } }

    func begin(_ handler: (@MainActor @Sendable () -> Void)?) -> UIBackgroundTaskIdentifier {
        state.withLock { state in
            guard state.isGranting else { return .invalid }
            state.begun += 1
            state.handlers[state.begun] = handler
            return UIBackgroundTaskIdentifier(rawValue: state.begun)
        }
    }

    func end(_ identifier: UIBackgroundTaskIdentifier) {
        let ready = state.withLock { state in
            state.ended.append(identifier.rawValue)
            state.handlers[identifier.rawValue] = nil
            let count = state.ended.count
            let ready = state.waiters.filter { $0.count <= count }
            state.waiters.removeAll { $0.count <= count }
            return ready
        }
        for waiter in ready { waiter.continuation.resume() }
    }

    /// The time is over, as the system says it: on the main thread.
    @MainActor
    public func expire() {
        for handler in state.withLock({ $0.handlers }).values { handler() }
    }

    /// Returns once so many tasks have ended.
    public func ended(_ count: Int) async {
        await withCheckedContinuation { continuation in
            let isReady = state.withLock { state in
                if state.ended.count < count { state.waiters.append((count, continuation)) }
                return state.ended.count >= count
            }
            if isReady { continuation.resume() }
        }
    }
}
