import HapaxModel

/// Answers within a deadline whether the store works. One check at a time serves any number of callers.
final class ReadinessProbe: Sendable {
    private let store: any EventStore
    private let deadline: Duration
    private let state = Locked(State())

    private struct State {
        var isChecking = false
        var next = 0
        var waiting: [Int: CheckedContinuation<Bool, Never>] = [:]
    }

    init(store: any EventStore, deadline: Duration = ServerLimits.readiness) {
        self.store = store
        self.deadline = deadline
    }

    /// - Returns: false if the check failed, or did not end within the deadline.
    func isReady() async -> Bool {
        await withCheckedContinuation { continuation in
            let (number, starts) = state.withLock { state in
                state.next += 1
                state.waiting[state.next] = continuation
                defer { state.isChecking = true }
                return (state.next, !state.isChecking)
            }
            if starts { Task { await check() } }
            Task {
                try? await Task.sleep(for: deadline)
                state.withLock { $0.waiting.removeValue(forKey: number) }?.resume(returning: false)
            }
        }
    }

    private func check() async {
        var isReady = true
        do throws(StoreError) { try await store.check() } catch { isReady = false }
        let waiting = state.withLock { state in
            state.isChecking = false
            defer { state.waiting = [:] }
            return state.waiting.values
        }
        for continuation in waiting { continuation.resume(returning: isReady) }
    }
}
