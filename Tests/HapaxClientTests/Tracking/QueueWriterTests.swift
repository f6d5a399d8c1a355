import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("QueueWriter (R4, R8, I6, I12)", .endsWhenItHangs)
struct QueueWriterTests {
    /// A store that fails as long as a test wants.
    private final class Store: Sendable {
        let state = Locked((failing: false, sequences: [Int64](), attempts: 0))

        /// Run once, while the next commit is under way.
        let duringCommit = Locked<(@Sendable () -> Void)?>(nil)

        func commit(_ events: [PreparedEvent]) throws -> Int {
            let action = duringCommit.withLock { action in
                defer { action = nil }
                return action
            }
            action?()
            return try state.withLock { state in
                state.attempts += 1
                if state.failing { throw DatabaseError(resultCode: .SQLITE_FULL) }
                state.sequences.append(contentsOf: events.map(\.time))
                return state.sequences.count
            }
        }
    }

    private let store = Store()
    private let clock = TestClock()

    /// Events are numbered as they are taken in, by their times.
    private let numbers = Locked(Int64(0))
    private func next() -> Int64 {
        numbers.withLock {
            $0 += 1; return $0
        }
    }

    private func writer(capacity: Int = 10_000, clock: (any ClientClock)? = nil) -> QueueWriter {
        QueueWriter(
            intake: Locked(Intake(capacity: capacity)), clock: clock ?? self.clock, immediateEvents: { [] },
            commit: { [store] events, _, committed in
                let depth = try store.commit(events)
                committed()
                return QueueWriter.Committed(depth: depth)
            }, stored: { _ in })
    }

    private func admit(_ writer: QueueWriter, waiter: CommitWaiter? = nil) {
        let admission = writer.intake.withLock {
            $0.admit(name: "e", properties: [:], id: .made, time: next(), distinctID: "u", now: clock.unixMilliseconds, waiter: waiter)
        }
        if case .admitted(_, true) = admission { writer.wake() }
    }

    @Test("a failed commit throws to those who wait, keeps its events at the head, and later ones behind them (R8)")
    func failedCommitKeepsOrder() async throws {
        let writer = writer()
        store.state.withLock { $0.failing = true }
        let waiter = CommitWaiter()
        admit(writer, waiter: waiter)
        await #expect(throws: TrackError.self) { try await waiter.wait() }
        await clock.scheduled(1)
        for _ in 0..<5 { admit(writer) }
        #expect(writer.lastFailure?.code == 13)
        #expect(store.state.withLock { $0.attempts } == 1, "no attempt before the backoff ends, whatever comes in")
        store.state.withLock { $0.failing = false }
        clock.advance(by: .seconds(5))
        try await writer.barrier()
        #expect(store.state.withLock { $0.sequences } == [1, 2, 3, 4, 5, 6])
        #expect(writer.lastFailure == nil)
        #expect(writer.intake.withLock { $0.uncommitted } == QueueUsage())
    }

    @Test("callers who ask for attempts while the store fails leave one attempt behind, not one each (I13, I16)")
    func askedAttemptsDoNotMultiply() async throws {
        let writer = writer()
        store.state.withLock { $0.failing = true }
        admit(writer)
        for _ in 0..<20 { await #expect(throws: TrackError.self) { try await writer.barrier(retrying: true) } }
        #expect(clock.pending.count == 1)
        let before = store.state.withLock { $0.attempts }
        clock.advance(by: .seconds(5))
        await #expect(throws: TrackError.self) { try await writer.barrier(retrying: true) }
        #expect(store.state.withLock { $0.attempts } <= before + 2 && clock.pending.count == 1)
        store.state.withLock { $0.failing = false }
        clock.advance(by: .seconds(5))
        try await writer.barrier()
        #expect(store.state.withLock { $0.sequences } == [1])
    }

    @Test("a failed commit throws to everyone who waits, beyond its group and in the mailbox, and loses no event (R8)")
    func failedCommitTellsEveryone() async throws {
        let writer = writer()
        store.state.withLock { $0.failing = true }
        let waiters = (0..<3_000).map { _ in CommitWaiter() }
        for waiter in waiters.prefix(2_500) {
            // Not woken: the writer finds all of them at once, in three groups.
            _ = writer.intake.withLock {
                $0.admit(name: "e", properties: [:], id: .made, time: next(), distinctID: "u", now: clock.unixMilliseconds, waiter: waiter)
            }
        }
        store.duringCommit.withLock { action in
            action = { for waiter in waiters.suffix(500) { admit(writer, waiter: waiter) } }
        }
        writer.wake()
        for waiter in waiters { await #expect(throws: TrackError.self) { try await waiter.wait() } }
        #expect(store.state.withLock { $0.attempts } == 1)
        await clock.scheduled(1)
        store.state.withLock { $0.failing = false }
        clock.advance(by: .seconds(5))
        try await writer.barrier()
        #expect(store.state.withLock { $0.sequences } == Array(1...3_000))
    }

    /// Does something in the moment in which the next attempt is scheduled.
    private struct InterruptedClock: ClientClock {
        let clock: TestClock
        let interruption = Locked<(@Sendable () -> Void)?>(nil)
        var unixMilliseconds: Int64 { clock.unixMilliseconds }
        var monotonic: Duration { clock.monotonic }

        func schedule(after delay: Duration, _ action: @escaping @Sendable () -> Void) -> any ScheduledAction {
            defer { interruption.withLock { $0 }?() }
            return clock.schedule(after: delay, action)
        }
    }

    @Test("who comes once the next attempt is due waits for that, and is not told of the failure before")
    func lateWaiterHearsOfTheNextAttempt() async throws {
        let clock = InterruptedClock(clock: clock)
        let writer = writer(clock: clock)
        let (first, late) = (CommitWaiter(), CommitWaiter())
        clock.interruption.withLock { $0 = { [weak writer] in _ = writer?.intake.withLock { $0.mark(late) } } }
        store.state.withLock { $0.failing = true }
        admit(writer, waiter: first)
        await #expect(throws: TrackError.self) { try await first.wait() }
        store.state.withLock { $0.failing = false }
        clock.clock.advance(by: .seconds(5))
        try await late.wait()
    }

    @Test("what is asked after giving up is answered (D7)")
    func barrierAfterGivingUpReturns() async {
        let writer = writer()
        writer.giveUp()
        await #expect(throws: TrackError.shutDown) { try await writer.barrier() }
        await #expect(throws: TrackError.shutDown) { try await writer.barrier() }
    }

    @Test("events that could not be stored fill the mailbox, which then refuses (I12, I13)")
    func failingStoreFillsTheMailbox() async {
        let writer = writer(capacity: 3)
        store.state.withLock { $0.failing = true }
        admit(writer)
        await clock.scheduled(1)
        for _ in 0..<5 { admit(writer) }
        #expect(writer.intake.withLock { $0.uncommitted.events } == 3)
        #expect(writer.intake.withLock { $0.uncounted } == ["mailbox_full": 3])
    }

    @Test("who flushes waits for one attempt, not for the backoff: the flush may be what makes room")
    func barrierDoesNotWaitForTheBackoff() async {
        let writer = writer()
        store.state.withLock { $0.failing = true }
        // Whoever comes in the middle of an attempt is told how that one ended.
        let waiter = CommitWaiter()
        admit(writer, waiter: waiter)
        await #expect(throws: TrackError.self) { try await waiter.wait() }
        await #expect(throws: TrackError.self) { try await writer.barrier(retrying: true) }
        #expect(store.state.withLock { $0.attempts } == 2)
    }

    @Test("giving up tells everyone who waits (D7)")
    func givingUpTellsEveryone() async {
        let writer = writer()
        store.state.withLock { $0.failing = true }
        admit(writer)
        await clock.scheduled(1)
        let late = CommitWaiter()
        admit(writer, waiter: late)
        writer.giveUp()
        await #expect(throws: TrackError.shutDown) { try await late.wait() }
    }

    @Test("16 threads: stored in the order of their sequences, without a gap (R8, I7)")
    func sixteenThreadsKeepOrder() async throws {
        let writer = writer(capacity: 100_000)
        _ = await onThreads(16) { _ in
            for _ in 0..<500 { admit(writer) }
        }
        try await writer.barrier()
        let sequences = store.state.withLock { $0.sequences }
        #expect(Self.isGaplessOrder(sequences))
        #expect(sequences.count == 8_000)
    }

    @Test("control: the check above sees an inversion, a gap and a repetition")
    func orderCheckSeesFaults() {
        #expect(Self.isGaplessOrder([1, 2, 3]))
        #expect(!Self.isGaplessOrder([1, 3, 2]))
        #expect(!Self.isGaplessOrder([1, 3]))
        #expect(!Self.isGaplessOrder([1, 1, 2]))
    }

    private static func isGaplessOrder(_ sequences: [Int64]) -> Bool {
        sequences.elementsEqual((1...Int64(max(sequences.count, 1))).prefix(sequences.count))
    }
}
