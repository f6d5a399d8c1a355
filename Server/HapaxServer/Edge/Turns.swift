import HapaxModel

/// Limits how many requests work at once, in turns by project. A request that costs its sender little and the server much delays its own
/// project's requests, and others' by one piece of work at most.
///
/// There are five kinds: ``work()`` for the processor, taken before a body is unpacked and never held while waiting for the store or a socket;
/// ``questions()`` for lists and counts; ``dryRuns()``; ``exports()`` for the steps of exports; ``searches()`` for what an admin tries. Only a dry run holds a turn while it waits for
/// another: ``work()`` on its body.
final class Turns: Sendable {
    private struct Waiter {
        /// When it stops waiting; nil if it waits as long as it takes.
        var due: ContinuousClock.Instant?
        /// With its place; nil if its turn does not come.
        var begins: CheckedContinuation<Int?, Never>
    }

    private struct State {
        var queue: TurnQueue<Waiter>
        /// Whether a task ends waits that are due.
        var isWatched = false
    }

    private let state: Locked<State>
    private let patience: Duration?
    /// The number of the first place.
    private let first: Int
    /// How long a turn lasts before it looks whether others are to go first.
    private static let slice: Duration = .milliseconds(2)
    /// Bytes of work between two looks at the clock; the most expensive ones take a tenth of a slice.
    private static let unclockedBytes = 4 * 1024

    private init(_ queue: sending TurnQueue<Waiter>, first: Int = 0, patience: Duration? = nil) {
        state = Locked(State(queue: queue))
        (self.patience, self.first) = (patience, first)
    }

    /// For inflating, scanning and hashing.
    static func work(places: Int = Processors.usable - 1) -> Turns {
        Turns(
            TurnQueue(places: places, maximumWaiting: ServerLimits.waitingTurns, maximumBegun: ServerLimits.begunTurns),
            patience: ServerLimits.turnWait)
    }

    /// For people's questions: one project leaves at least one place for the others.
    static func questions(patience: Duration = ServerLimits.heavyReadWait) -> Turns {
        Turns(
            TurnQueue(
                places: ServerLimits.heavyReads, placesOfOne: ServerLimits.heavyReads - 1, maximumWaiting: ServerLimits.waitingTurns),
            patience: patience)
    }

    /// For dry runs, which hold an unpacked body while they wait for the store.
    static func dryRuns() -> Turns {
        Turns(
            TurnQueue(places: ServerLimits.dryRuns, maximumWaiting: ServerLimits.waitingTurns),
            first: ServerLimits.heavyReads + ServerLimits.exportReads, patience: ServerLimits.heavyReadWait)
    }

    /// For what an admin tries before it is done: one at a time, as it searches on the connection for that.
    static func searches() -> Turns {
        Turns(TurnQueue(places: 1, maximumWaiting: ServerLimits.waitingTurns), patience: ServerLimits.heavyReadWait)
    }

    /// For steps of exports, which wait as long as it takes.
    static func exports() -> Turns {
        Turns(TurnQueue(places: ServerLimits.exportReads, maximumWaiting: .max), first: ServerLimits.heavyReads)
    }

    var waiting: Int { state.withLock { $0.queue.waitingCount } }

    /// One request's turn, which ends with ``Turns/run(_:_:)``.
    struct Turn: ~Copyable {
        fileprivate let turns: Turns
        fileprivate let project: Int32
        /// No other turn has it meanwhile: for questions, exports and dry runs the number of a connection (``QuestionTurn/connection``).
        fileprivate(set) var place: Int
        fileprivate var began = ContinuousClock.now
        /// Bytes worked on since the last look at the clock.
        private var bytes = 0

        fileprivate init(_ turns: Turns, _ project: Int32, _ place: Int) {
            (self.turns, self.project, self.place) = (turns, project, place)
        }

        /// Whether others may go first now. Call it after each piece of work with its bytes, however few: it rarely looks at the clock.
        mutating func isOver(after count: Int) -> Bool {
            bytes += count
            guard bytes >= Turns.unclockedBytes else { return false }
            bytes = 0
            return .now - began >= Turns.slice
        }

        mutating func giveWay() async {
            place = await turns.giveWay(project, at: place, used: .now - began)
            began = .now
        }
    }

    /// - Throws: ``RequestProblem/Code/overloaded`` if the room for waiting is full or the turn does not come in time; and what `body` throws.
    func run<Value>(
        _ project: Int32, _ body: (inout Turn) async throws(RequestProblem) -> Value
    ) async throws(RequestProblem) -> Value {
        guard let place = await begin(project) else { throw RequestProblem(.overloaded, detail: "too many requests wait for their turn") }
        var turn = Turn(self, project, place)
        let result: Result<Value, RequestProblem>
        do throws(RequestProblem) { result = .success(try await body(&turn)) } catch { result = .failure(error) }
        let (used, left) = (ContinuousClock.now - turn.began, turn.place)
        state.withLock { $0.queue.ended(project, at: left - first, used: used) }?.begins.resume(returning: left)
        return try result.get()
    }

    /// - Returns: Its place, once its turn has come.
    private func begin(_ project: Int32) async -> Int? {
        await withCheckedContinuation { begins in
            let due = patience.map { ContinuousClock.now + $0 }
            let (admission, mustWatch) = state.withLock { state in
                let admission = state.queue.arrived(Waiter(due: due, begins: begins), of: project)
                let mustWatch = admission == .waits && due != nil && !state.isWatched
                if mustWatch { state.isWatched = true }
                return (admission, mustWatch)
            }
            switch admission {
            case .works(let place): begins.resume(returning: first + place)
            case .refused: begins.resume(returning: nil)
            case .waits: if mustWatch { watch() }
            }
        }
    }

    /// Ends the waits that are due, until nobody waits: one task for all, since nearly all turns come in time.
    private func watch() {
        guard let patience else { return }
        Task {
            var goesOn = true
            while goesOn {
                try? await Task.sleep(for: patience / 8)
                let late = state.withLock { state in
                    let late = state.queue.withdrew { $0.due.map { $0 <= .now } ?? false }
                    state.isWatched = state.queue.waitingCount > 0
                    goesOn = state.isWatched
                    return late
                }
                for waiter in late { waiter.begins.resume(returning: nil) }
            }
        }
    }

    /// - Returns: The place in which it goes on.
    private func giveWay(_ project: Int32, at place: Int, used: Duration) async -> Int {
        let next = await withCheckedContinuation { goesOn in
            let next = state.withLock { $0.queue.gaveWay(Waiter(begins: goesOn), project, at: place - first, used: used) }
            (next?.begins ?? goesOn).resume(returning: place)
        }
        // Who has begun does not stop waiting.
        return next ?? place
    }
}
