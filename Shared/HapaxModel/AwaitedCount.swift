/// A number that tasks can wait for. Whoever is cancelled, as by a test's time limit, waits no longer.
package final class AwaitedCount: Sendable {
    private struct Waiter {
        var target: Int
        var continuation: CheckedContinuation<Void, Never>
    }

    private struct State {
        var value = 0
        var next = 0
        /// By the number of the wait.
        var waiters: [Int: Waiter] = [:]
        /// Waits that were cancelled before they began.
        var cancelled: Set<Int> = []
    }

    private let state = Locked(State())

    package init() {}

    /// May be set while a lock is held: who waits goes on later, on its own.
    package func set(_ value: Int) {
        let reached = state.withLock { state in
            state.value = value
            let reached = state.waiters.filter { $0.value.target <= value }
            for number in reached.keys { state.waiters[number] = nil }
            return reached.values
        }
        for waiter in reached { waiter.continuation.resume() }
    }

    /// Returns once the number is that large.
    package func reaches(_ target: Int) async {
        let number = state.withLock { state in
            state.next += 1
            return state.next
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isOver = state.withLock { state in
                    if state.cancelled.remove(number) != nil || state.value >= target { return true }
                    state.waiters[number] = Waiter(target: target, continuation: continuation)
                    return false
                }
                if isOver { continuation.resume() }
            }
        } onCancel: {
            let waiter = state.withLock { state in
                let waiter = state.waiters.removeValue(forKey: number)
                if waiter == nil { state.cancelled.insert(number) }
                return waiter
            }
            waiter?.continuation.resume()
        }
    }
}
