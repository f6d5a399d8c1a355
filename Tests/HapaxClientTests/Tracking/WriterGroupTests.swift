import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("What a writer commits together, and whom it tells (R8, R12, R38, D7, I12, I13)", .endsWhenItHangs)
struct WriterGroupTests {
    /// What a store was given, by commit, and what was said of it.
    private struct Record {
        var failing = false
        var driveFailure: StorageFailure?
        var groups: [[Int64]] = []
        var dropped: [[String: Int64]] = []
        var stored: [QueueWriter.Stored] = []
        /// Run while a commit is under way.
        var duringCommit: (@Sendable () -> Void)?
    }

    /// Says when the writer that holds it is gone, and with it the work it was at.
    private final class Life: Sendable {
        private let ended: AwaitedCount

        init(_ ended: AwaitedCount) { self.ended = ended }

        deinit { ended.set(1) }
    }

    private let record = Locked(Record())
    private let ended = AwaitedCount()
    private let clock = TestClock()
    /// Events are numbered as they are taken in, by their times.
    private let numbers = Locked(Int64(0))
    private func next() -> Int64 {
        numbers.withLock {
            $0 += 1; return $0
        }
    }

    private func writer(
        capacity: Int = 10_000, retryPolicy: RetryPolicy = .storage, maximumGroupBytes: Int = 1024 * 1024,
        immediateEvents: @escaping @Sendable () -> Set<String>? = { [] },
        encode: @escaping QueueWriter.Encode = { $0.encoded(over: $1) }
    ) -> QueueWriter {
        QueueWriter(
            intake: Locked(Intake(capacity: capacity)), clock: clock, retryPolicy: retryPolicy,
            maximumGroupBytes: maximumGroupBytes, immediateEvents: immediateEvents, encode: encode,
            commit: { [record, life = Life(ended)] events, dropped, committed in
                withExtendedLifetime(life) {}
                record.withLock { $0.duringCommit }?()
                return try record.withLock { record in
                    if record.failing { throw DatabaseError(resultCode: .SQLITE_FULL) }
                    committed()
                    record.groups.append(events.map(\.time))
                    record.dropped.append(dropped)
                    return QueueWriter.Committed(depth: record.groups.joined().count)
                }
            },
            flush: { [record] in try record.withLock { if let failure = $0.driveFailure { throw failure } } },
            stored: { [record] stored in record.withLock { $0.stored.append(stored) } })
    }

    /// - Returns: nil if it was refused; else whether the writer must be started.
    private func admit(
        _ intake: Locked<Intake>, _ name: String = "e", properties: Properties = [:], id: EventID = .made, waiter: CommitWaiter? = nil
    ) -> Bool? {
        let admission = intake.withLock {
            $0.admit(name: name, properties: properties, id: id, time: next(), distinctID: "u", now: clock.unixMilliseconds, waiter: waiter)
        }
        return if case .admitted(_, let wake) = admission { wake } else { nil }
    }

    @Test("a transaction has a thousand events at most, however often one has failed before (R8, I13)")
    func groupsAreBounded() async throws {
        let writer = writer()
        record.withLock { $0.failing = true }
        for _ in 0..<3_000 { _ = admit(writer.intake) }
        writer.wake()
        await clock.scheduled(1)
        for _ in 0..<3 { await #expect(throws: TrackError.self) { try await writer.barrier(retrying: true) } }
        record.withLock { $0.failing = false }
        try? await writer.barrier(retrying: true)
        try await writer.barrier()
        let groups = record.withLock { $0.groups }
        #expect(groups.map(\.count) == [1_000, 1_000, 1_000] && groups.joined().elementsEqual(1...3_000))
    }

    @Test("a flush that failed behind a change of the identity alone is no commit of the events behind it (I4, R56)")
    func failedFlushCommitsNobodyElse() async throws {
        let writer = writer()
        record.withLock { $0.driveFailure = StorageFailure(errno: EIO) }
        if writer.intake.withLock({ $0.change(IdentityChange(login: .some("anna"))).wake }) { writer.wake() }
        await clock.scheduled(1)
        _ = admit(writer.intake)
        record.withLock { $0.driveFailure = nil }
        try await writer.barrier(retrying: true)
        #expect(record.withLock { $0.groups.map(\.count) } == [1] && writer.intake.withLock { $0.uncommitted.events } == 0)
    }

    @Test("a transaction has so many bytes of events, and the last one may exceed it (I13)")
    func groupsAreBoundedInBytes() async throws {
        let writer = writer(maximumGroupBytes: 1_000)
        let fill = PropertyValue.string(String(repeating: "x", count: 600))
        for _ in 0..<10 { _ = admit(writer.intake, properties: ["k": fill]) }
        writer.wake()
        try await writer.barrier()
        #expect(record.withLock { $0.groups.map(\.count) } == [2, 2, 2, 2, 2])
    }

    @Test("who uploads is told of stored events alone, and that one of them is immediate wherever it stands (R17, D4)")
    func immediateEventsAreTold() async throws {
        let writer = writer(immediateEvents: { ["now"] })
        _ = admit(writer.intake, "now")
        _ = admit(writer.intake, "later")
        writer.wake()
        try await writer.barrier()
        if admit(writer.intake, "later") == true { writer.wake() }
        // It is told behind those who wait for the commit, and in their order.
        for _ in 0..<3 { try await writer.barrier() }
        let stored = record.withLock { $0.stored }
        #expect(stored.map(\.depth) == [2, 3] && stored.map(\.immediate) == [true, false])
    }

    @Test("without names every event is immediate, as for who debugs")
    func everyEventMayBeImmediate() async throws {
        let writer = writer(immediateEvents: { nil })
        if admit(writer.intake) == true { writer.wake() }
        for _ in 0..<2 { try await writer.barrier() }
        #expect(record.withLock { $0.stored.map(\.immediate) } == [true])
    }

    @Test("waits grow with each failure, and begin anew behind a success (I13, I16)")
    func backoffGrowsAndBeginsAnew() async throws {
        // So far apart that chance cannot take one for the other.
        let base = Duration.milliseconds(1)
        let writer = writer(retryPolicy: RetryPolicy(base: base, cap: .seconds(100_000)))
        func fail() async {
            record.withLock { $0.failing = true }
            if admit(writer.intake) == true { writer.wake() }
            await clock.scheduled(1)
        }
        await fail()
        for _ in 0..<25 { await #expect(throws: TrackError.self) { try await writer.barrier(retrying: true) } }
        #expect(clock.pending.count == 1 && clock.pending.allSatisfy { $0 > base })
        record.withLock { $0.failing = false }
        clock.advance(by: .seconds(100_000))
        try await writer.barrier()
        await fail()
        #expect(clock.pending.count == 1 && clock.pending.allSatisfy { $0 <= base })
    }

    @Test("what a power cut may still take is told as not stored until it is flushed, and is stored once; so for who asks again (I6, I12)")
    func unflushedCommitIsTold() async throws {
        let writer = writer()
        let failure = StorageFailure(errno: EIO)
        record.withLock { $0.driveFailure = failure }
        let id = EventID.derived(name: "order", key: "1")
        @Sendable func track() async throws {
            let waiter = CommitWaiter()
            if admit(writer.intake, id: id, waiter: waiter) == true { writer.wake() }
            try await waiter.wait()
        }
        await #expect(throws: TrackError.notStored(failure)) { try await track() }
        #expect(writer.lastFailure == failure && writer.intake.withLock { $0.uncommitted.events } == 0)
        await clock.scheduled(1)
        // The flush of the first event is tried again before this one is committed.
        let again = Task { try await track() }
        while writer.intake.withLock({ $0.mailbox.isEmpty }) { await Task.yield() }
        clock.advance(by: .seconds(5))
        await #expect(throws: TrackError.notStored(failure)) { try await again.value }
        #expect(record.withLock { $0.groups } == [[1]] && record.withLock { $0.stored.isEmpty })
        record.withLock { $0.driveFailure = nil }
        await clock.scheduled(1)
        clock.advance(by: .seconds(5))
        try await track()
        #expect(record.withLock { Array($0.groups.joined()) } == [1, 2, 3] && writer.lastFailure == nil)
    }

    @Test("events are encoded once, however often their commit fails (R4)")
    func failedCommitEncodesNothingAgain() async throws {
        let encodings = Locked(0)
        let atCommits = Locked<[Int]>([])
        let writer = writer(encode: { event, base in
            encodings.withLock { $0 += 1 }
            return event.encoded(over: base)
        })
        record.withLock { record in
            record.failing = true
            record.duringCommit = { atCommits.withLock { $0.append(encodings.withLock { $0 }) } }
        }
        if admit(writer.intake) == true { writer.wake() }
        await clock.scheduled(1)
        for _ in 0..<3 { await #expect(throws: TrackError.self) { try await writer.barrier(retrying: true) } }
        record.withLock { $0.failing = false }
        try? await writer.barrier(retrying: true)
        try await writer.barrier()
        #expect(record.withLock { $0.groups } == [[1]])
        #expect(atCommits.withLock { $0 } == [1, 1, 1, 1, 1])
    }

    @Test("refusals are counted by a commit of their own if no event comes, and by the next one if it fails (I12)")
    func refusalsAreCountedOnce() async throws {
        let writer = writer()
        _ = writer.intake.withLock { $0.refuse(.enricher) }
        record.withLock { record in
            record.failing = true
            record.duringCommit = { [intake = writer.intake] in _ = intake.withLock { $0.refuse(.enricher) } }
        }
        await #expect(throws: TrackError.self) { try await writer.barrier() }
        record.withLock { ($0.failing, $0.duringCommit) = (false, nil) }
        try? await writer.barrier(retrying: true)
        try await writer.barrier()
        #expect(record.withLock { $0.dropped } == [["enricher": 2]])
    }

    @Test("who waits is told once: what comes later changes nothing of it")
    func firstAnswerHolds() async throws {
        let told = Locked(0)
        let waiter = CommitWaiter { _ in told.withLock { $0 += 1 } }
        waiter.resume(.success(nil))
        waiter.resume(.failure(.shutDown))
        try await waiter.wait()
        #expect(told.withLock { $0 } == 1)
    }

    @Test("giving up tells those whose commit hangs; nothing is taken in or committed any more (D7, R38)")
    func nothingFollowsGivingUp() async {
        let hanging = Gate()
        do {
            let writer = writer()
            record.withLock { $0.duringCommit = { hanging.blockUntilOpen() } }
            let (first, second) = (CommitWaiter(), CommitWaiter())
            if admit(writer.intake, waiter: first) == true { writer.wake() }
            await hanging.waitForArrivals(1)
            _ = admit(writer.intake, waiter: second)
            writer.giveUp()
            await #expect(throws: TrackError.shutDown) { try await first.wait() }
            await #expect(throws: TrackError.shutDown) { try await second.wait() }
            #expect(admit(writer.intake) == nil)
        }
        hanging.open()
        await ended.reaches(1)
        #expect(record.withLock { $0.groups } == [[1]])
    }

    @Test("giving up also tells those whose commit hangs while the group behind it is encoded already (D7, R38)")
    func encodingAheadForgetsNobody() async {
        let (encoded, hanging) = (Gate(), Gate())
        let intake = Locked<Locked<Intake>?>(nil)
        let looks = Locked(0)
        // Looked at once for each group, behind what it takes from the mailbox.
        let writer = writer(immediateEvents: {
            let look = looks.withLock { looks in
                looks += 1
                return looks
            }
            if look == 1, let intake = intake.withLock({ $0 }) { for _ in 0..<QueueWriter.minimumAhead { _ = admit(intake) } }
            if look == 2 { encoded.open() }
            return []
        })
        intake.withLock { $0 = writer.intake }
        record.withLock { $0.duringCommit = { for gate in [encoded, hanging] { gate.blockUntilOpen() } } }
        let waiter = CommitWaiter()
        if admit(writer.intake, waiter: waiter) == true { writer.wake() }
        await hanging.waitForArrivals(1)
        writer.giveUp()
        await #expect(throws: TrackError.shutDown) { try await waiter.wait() }
        hanging.open()
    }
}
