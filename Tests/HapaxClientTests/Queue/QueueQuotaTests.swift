import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("QueueQuota (I12, I13)", .endsWhenItHangs)
struct QueueQuotaTests {
    private func client(
        _ transport: ScriptedTransport = ScriptedTransport(), clock: TestClock = TestClock(), _ change: (inout QueueQuota) -> Void
    ) throws -> TestClient {
        var quota = QueueQuota()
        change(&quota)
        return try TestClient(clock: clock, transport: transport) { $0.queue.quota = quota }
    }

    @Test("exactly as many events as allowed are taken; the others take no sequence and are counted (I12)")
    func fullQueueRefuses() async throws {
        let test = try client { $0.maximumEvents = 100 }
        let ids = (0..<150).map { test.client.track("event \($0)") }
        #expect(ids.prefix(100).allSatisfy { $0 != nil } && ids.dropFirst(100).allSatisfy { $0 == nil })
        try await test.client.writer.barrier()
        await #expect(throws: TrackError.refused(.quotaFull)) { try await test.client.trackDurably("one more") }
        let status = await test.client.status()
        #expect(status.created == 100 && status.depth == 100)
        #expect(status.dropped == ["quota_full": 51])
        #expect(status.isBalanced)
    }

    @Test("delivery makes room again, and the refusals are reported with the batches (I12)")
    func deliveryMakesRoom() async throws {
        let test = try client { $0.maximumEvents = 3 }
        try await test.track(0..<5)
        #expect(await test.client.flush().stored == 3)
        _ = try await test.client.trackDurably("later")
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.last?.sequences == [4], "no gap where events were refused (I7)")
        #expect(test.transport.batches.last?.scanned.envelope.refused == ["quota_full": 2])
    }

    @Test(
        "dead letters, of the server's or of the intake's making, have a quarter of the quota: beyond it the oldest goes, counted and told, and events are still taken (C13, I12)",
        arguments: [true, false])
    func fullLettersDropTheOldest(isOfServer: Bool) async throws {
        let test = try client(ScriptedTransport { batch in .success(batch.receipt { _ in .rejected }) }) { $0.maximumEvents = 8 }
        for number in 0..<8 { test.client.track(isOfServer ? "event \(number)" : "") }
        try await test.client.writer.barrier()
        #expect(await test.client.flush().deadLettered == 8)
        #expect(try await test.client.deadLetters.list().map(\.number) == [7, 8])
        let gone = test.transport.batches.flatMap(\.scanned.envelope.removed)
        // How many commits the eight took, and so how many ranges they are told in, is the machine's affair.
        #expect(Set(gone.filter { $0.reason == "quota_dead_letter" }.flatMap(\.sequences)) == Set(1...6), "\(gone)")
        let taken = (0..<7).compactMap { test.client.track("event \($0)") }
        #expect(taken.count == 6, "they count all the same")
        try await test.client.writer.barrier()
        let status = await test.client.status()
        #expect(status.dropped == ["quota_dead_letter": 6, "quota_full": 1] && status.deadLettered == 8 && status.isBalanced)
        await test.client.shutdown(within: .zero)
    }

    @Test("bytes are limited as well, those in memory included")
    func bytesAreLimited() async throws {
        let test = try client { $0.maximumBytes = 10_000 }
        let fill = PropertyValue.string(String(repeating: "x", count: 900))
        let taken = (0..<50).compactMap { _ in test.client.track("e", properties: ["fill": fill]) }
        #expect((8...10).contains(taken.count))
        try await test.client.writer.barrier()
        #expect(await test.client.status().bytes <= 10_000)
    }

    @Test("of a queue of so many bytes no more is dropped than what comes needs, dead letters before events (I12, I13)")
    func bytesAreDroppedOneByOne() async throws {
        let transport = ScriptedTransport { batch in .success(batch.receipt { _ in .rejected }) }
        let test = try client(transport) { ($0.maximumBytes, $0.policy) = (24_000, .dropOldest) }
        let fill = PropertyValue.string(String(repeating: "x", count: 900))
        func track(_ count: Int) async throws {
            for _ in 0..<count { _ = try await test.client.trackDurably("e", properties: ["fill": fill]) }
        }
        func sizes(_ table: String) throws -> [Int] {
            try test.client.file.reading { try Int.fetchAll($0, sql: "SELECT length(payload) FROM \(table) ORDER BY sequence") }
        }
        try await track(5)
        #expect(await test.client.flush().deadLettered == 5)
        for deadLetters in [5, 0] {
            try await track(deadLetters > 0 ? 8 : 30)
            let kept = try sizes("dead_letters") + sizes("events")
            let sum = kept.reduce(0, +)
            #expect(sum <= 24_000)
            #expect(try await test.client.status().bytes == sizes("events").reduce(0, +))
            #expect(try sizes("dead_letters").count == deadLetters)
            // All are of one size: another would not have fitted.
            if deadLetters == 0 { #expect(kept.count > 10 && sum + (kept.max() ?? 0) > 24_000) }
        }
        #expect(await test.client.status().isBalanced)
        await test.client.shutdown(within: .zero)
    }

    @Test("a quota that was made smaller refuses what comes; what is stored already stays, unless the policy is to drop (I1, I12)")
    func smallerQuotaKeepsWhatIsStored() async throws {
        let directory = TemporaryDirectory()
        let first = try TestClient(directory: directory)
        try await first.track(0..<5)
        await first.client.shutdown(within: .zero)
        let test = try TestClient(directory: directory) { $0.queue.quota.maximumEvents = 2 }
        #expect(test.client.track("no room") == nil)
        try await test.client.writer.barrier()
        let status = await test.client.status()
        #expect(status.depth == 5 && status.dropped == ["quota_full": 1])
    }

    @Test("by estimate what is nested deeper than an event may be takes nothing: looking for its end would need a stack without end (I13)")
    func estimateEnds() {
        func bytes(nested levels: Int) -> Int64 {
            QueueUsage.bytes(of: ["k": (0..<levels).reduce(PropertyValue.null) { value, _ in .array([value]) }])
        }
        #expect(bytes(nested: 5) < bytes(nested: 6))
        #expect(bytes(nested: EventLimits.maximumDepth + 10) == bytes(nested: 200))
    }

    @Test("what the quota counts survives reopening")
    func usageSurvivesReopening() async throws {
        let directory = TemporaryDirectory()
        var quota = QueueQuota()
        quota.maximumEvents = 2
        do {
            let test = try TestClient(directory: directory) { [quota] in $0.queue.quota = quota }
            try await test.track(0..<2)
            test.client.file.close()
        }
        let test = try TestClient(directory: directory) { [quota] in $0.queue.quota = quota }
        #expect(test.client.track("no room") == nil)
    }

    @Test("dropOldest takes what is new, removes dead letters, then the oldest, and counts each (I12)")
    func dropOldestKeepsTheNewest() async throws {
        let test = try client(ScriptedTransport { batch in .success(batch.receipt { _ in .rejected }) }) {
            $0.maximumEvents = 3
            $0.policy = .dropOldest
        }
        try await test.track(0..<1)
        #expect(await test.client.flush().deadLettered == 1)
        try await test.track(1..<7)
        let status = await test.client.status()
        #expect(status.depth == 3 && status.removed == 3 && status.isBalanced)
        #expect(status.dropped == ["quota_dead_letter": 1, "quota_oldest": 3])
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 3)
        #expect(test.transport.batches.last?.names == ["event 4", "event 5", "event 6"])
        let gone = [EventBatch.Envelope.Removed(1...1, reason: "quota_dead_letter"), .init(2...4, reason: "quota_oldest")]
        #expect(test.transport.batches.last?.scanned.envelope.removed == gone)
    }

    @Test("an event that is dropped while it is being sent is settled as dropped, its neighbours as usual (I5)")
    func droppedWhileSent() async throws {
        let gate = Locked<TestClient?>(nil)
        let transport = ScriptedTransport { batch in
            if let test = gate.withLock({ $0 }) {
                gate.withLock { $0 = nil }
                _ = try? await test.track(3..<4)
            }
            return .success(batch.receipt())
        }
        let test = try client(transport) {
            $0.maximumEvents = 3
            $0.policy = .dropOldest
        }
        try await test.track(0..<3)
        gate.withLock { $0 = test }
        for _ in 0..<2 { _ = await test.client.flush() }
        let status = await test.client.status()
        #expect(test.transport.batches.map(\.names) == [["event 0", "event 1", "event 2"], ["event 3"]])
        #expect(status.stored == 3 && status.removed == 1 && status.depth == 0 && status.isBalanced)
    }

    @Test("an event whose removal fails while it is being sent is settled as what it is (I1, I12)", arguments: [false, true])
    func failedRemovalIsNone(isAged: Bool) async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let sent = Locked<TestClient?>(nil)
        let transport = ScriptedTransport { batch in
            if let test = sent.withLock({ $0 }) {
                sent.withLock { $0 = nil }
                if isAged { test.clock.advance(by: .seconds(100)) }
                disk.fail(FaultyDisk.Fault(at: 0, count: .max / 2, code: ResultCode.SQLITE_IOERR_WRITE.rawValue, operations: [.write]))
                if isAged {
                    #expect(throws: DatabaseError.self) { try test.client.file.removeDue(now: test.clock.unixMilliseconds) }
                } else {
                    await #expect(throws: TrackError.self) { try await test.client.trackDurably("late") }
                }
                #expect(disk.failures > 0)
                disk.fail(nil)
            }
            return .success(batch.receipt())
        }
        let test = try TestClient(directory: directory, transport: transport) {
            $0.queue.quota.policy = .dropOldest
            if isAged { $0.queue.quota.maximumAge = .seconds(60) } else { $0.queue.quota.maximumEvents = 3 }
        }
        try await test.track(0..<3)
        sent.withLock { $0 = test }
        _ = await test.client.flush()
        let status = await test.client.status()
        #expect(transport.batches.first?.names == ["event 0", "event 1", "event 2"])
        #expect(transport.batches.flatMap(\.names).filter { $0 == "event 0" }.count == 1)
        #expect(status.stored >= 3 && status.duplicates == 0 && status.removed == 0 && status.isBalanced, "\(status)")
        await test.client.shutdown(within: .zero)
    }

    @Test("what the quota removes in the commit that stores it is not told as stored (I1, I12)", arguments: [true, false])
    func removedAtOnceIsNotStored(isAged: Bool) async throws {
        let test = try client {
            $0.policy = .dropOldest
            if isAged { $0.maximumAge = .seconds(3_600) } else { $0.maximumBytes = 50 }
        }
        let id = EventID.derived(name: "order", key: "1")
        for _ in 1...2 {
            await #expect(throws: TrackError.removed) {
                try await test.client.trackDurably("old or large", id: id, time: Date(unixMilliseconds: 1))
            }
        }
        let status = await test.client.status()
        #expect(status.depth == 0 && status.isBalanced && status.dropped == [isAged ? "quota_age" : "quota_oldest": 2])
        if isAged { try await test.client.trackDurably("new", id: id) }
        await test.client.shutdown(within: .zero)
    }

    @Test("nor what becomes a dead letter for which there is no room (I12)")
    func letterRemovedAtOnceIsNotStored() async throws {
        let test = try client { ($0.policy, $0.maximumEvents) = (.dropOldest, 2) }
        try await test.track(0..<2)
        let name = String(repeating: "n", count: 10_000)
        await #expect(throws: TrackError.removed) { try await test.client.trackDurably(name) }
        let status = await test.client.status()
        #expect(status.depth == 2 && status.dropped == ["quota_dead_letter": 1] && status.isBalanced)
        await test.client.shutdown(within: .zero)
    }

    @Test("a dropped event's id is free again (R12)")
    func droppedIDIsFree() async throws {
        let test = try client {
            $0.maximumEvents = 1
            $0.policy = .dropOldest
        }
        let id = EventID.derived(name: "order", key: "1")
        _ = try await test.client.trackDurably("first", id: id)
        _ = try await test.client.trackDurably("second")
        _ = try await test.client.trackDurably("again", id: id)
        #expect(await test.client.status().created == 3)
    }

    @Test("events that are too old are removed before an upload and counted; without a limit none is")
    func oldEventsAreRemoved() async throws {
        for limit in [Duration.seconds(60), nil] {
            let test = try client { $0.maximumAge = limit }
            try await test.track(0..<2)
            test.clock.advance(by: .seconds(61))
            test.client.track("young")
            #expect(await test.client.flush().stored == (limit == nil ? 3 : 1))
            let status = await test.client.status()
            #expect(status.dropped == (limit == nil ? [:] : ["quota_age": 2]))
            #expect(status.isBalanced)
        }
    }

    @Test(
        "a limit of age that no clock reaches removes nothing",
        arguments: [.seconds(Int64.max), .seconds(9_223_372_036_854_775) + .milliseconds(900), .seconds(-9_223_372_036_854_775)]
            + [.seconds(1e19)] as [Duration])
    func endlessAgeRemovesNothing(limit: Duration) async throws {
        let test = try client { $0.maximumAge = limit }
        try await test.track(0..<2)
        #expect(await test.client.status().depth == 2)
    }

    @Test("what has become too old by itself is removed when an upload begins, though nothing was stored meanwhile (I12)")
    func agedEventsAreNotUploaded() async throws {
        let test = try client { $0.maximumAge = .seconds(60) }
        try await test.track(0..<2)
        test.clock.advance(by: .seconds(61))
        #expect(await test.client.flush() == FlushReport(stored: 0, duplicates: 0, deadLettered: 0, remaining: 0, failure: nil))
        #expect(test.transport.batches.map(\.ids) == [[]], "the server is told")
        let status = await test.client.status()
        #expect(status.dropped == ["quota_age": 2] && status.removed == 2 && status.isBalanced)
    }

    @Test("a great many that have become too old go in chunks: who stores meanwhile waits for one of them at most (I13)")
    func ageingGoesInChunks() throws {
        let directory = TemporaryDirectory()
        var quota = QueueQuota()
        quota.maximumAge = .seconds(60)
        let file = try QueueFile.open(directory.path, quota: quota)
        defer { file.close() }
        for first in stride(from: Int64(1), through: 3_500, by: 500) {
            try file.append((first..<first + 500).map { PreparedEvent.sample($0, fill: 10) })
        }
        let word = file.counters.word
        #expect(try file.removeDue(now: 1_000_000))
        #expect(file.counters.word - word >= 4, "each transaction is a word")
        #expect(file.counters.waiting == 0 && file.counters.removed == 3_500 && file.counters.isBalanced)
        #expect(try file.nextBatch(.none, maximumBytes: .max, now: 0).report.envelope.removed == [.init(1...3_500, reason: "quota_age")])
    }

    @Test("control: an account that forgets what is in memory takes more than allowed")
    func forgetfulAccountIsSeen() {
        var quota = QueueQuota()
        quota.maximumEvents = 1
        var account = QuotaAccount(quota: quota, used: QueueUsage())
        let one = QueueUsage(events: 1, bytes: 10)
        let first = account.reserve(one)
        let second = account.reserve(one)
        #expect(first && !second)
        account.committed(QueueUsage(), releasing: one)
        let third = account.reserve(one)
        #expect(third, "released without being stored: the check above would let it in")
    }
}
