import HapaxModel

/// Lets as many heavy questions run at once as the store has connections for; others wait a moment for their turn.
final class ReadGate: Sendable {
    private struct State {
        var running = 0
        var next = 0
        /// In the order of their arrival.
        var waiting: [(number: Int, turn: CheckedContinuation<Bool, Never>)] = []
    }

    private let limit: Int
    private let patience: Duration
    private let state = Locked(State())

    init(limit: Int = ServerLimits.heavyReads, patience: Duration = ServerLimits.heavyReadWait) {
        self.limit = limit
        self.patience = patience
    }

    /// - Throws: ``RequestProblem/Code/overloaded`` if its turn does not come in time.
    func run<Value>(_ body: () async throws -> Value) async throws -> Value {
        guard await turn() else {
            throw RequestProblem(.overloaded, detail: "as many heavy questions are being answered as may be at once")
        }
        defer { leave() }
        return try await body()
    }

    private func turn() async -> Bool {
        await withCheckedContinuation { turn in
            let number: Int? = state.withLock { state in
                guard state.running == limit else {
                    state.running += 1
                    return nil
                }
                state.next += 1
                state.waiting.append((state.next, turn))
                return state.next
            }
            guard let number else { return turn.resume(returning: true) }
            Task {
                try? await Task.sleep(for: patience)
                let late = state.withLock { state in
                    state.waiting.firstIndex { $0.number == number }.map { state.waiting.remove(at: $0).turn }
                }
                late?.resume(returning: false)
            }
        }
    }

    private func leave() {
        let next = state.withLock { state in
            // Who waited longest takes the place over.
            if !state.waiting.isEmpty { return state.waiting.removeFirst().turn as CheckedContinuation<Bool, Never>? }
            state.running -= 1
            return nil
        }
        next?.resume(returning: true)
    }
}
