import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

// Ten minutes: all of these suites share one thread, and the limit runs while a test waits for it.
@Suite("A queue on a disk that fails (I1, I6, I11, I12, D17)", .takesTurns, .endsWhenItHangs(after: .seconds(600)))
struct FaultyDiskTests {
    private static func event(_ number: Int64) -> PreparedEvent { .sample(number, fill: 700) }

    private enum Code {
        static let read = ResultCode.SQLITE_IOERR_READ.rawValue
        static let write = ResultCode.SQLITE_IOERR_WRITE.rawValue
        static let fsync = ResultCode.SQLITE_IOERR_FSYNC.rawValue
        static let full = ResultCode.SQLITE_FULL.rawValue
        static let corrupt = ResultCode.SQLITE_CORRUPT.rawValue
    }

    @Test("whichever read of a client's start fails, the queue is taken by nobody then, and nothing is lost (I1, D17)")
    func failedStartLeavesTheQueueFree() async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let first = try TestClient(directory: directory)
        let ids = try await first.track(0..<2_000)
        await first.client.shutdown(within: .zero)
        var (number, failures) = (0, 0)
        while true {
            disk.fail(FaultyDisk.Fault(at: number, count: .max / 2, code: ResultCode.SQLITE_IOERR.rawValue, operations: [.read]))
            let isStarted: Bool
            do {
                let test = try TestClient(directory: directory)
                isStarted = disk.failures == 0
                disk.fail(nil)
                await test.client.shutdown(within: .zero)
            } catch StartError.queueUnusable {
                isStarted = false
                failures += 1
                disk.fail(nil)
            }
            if isStarted { break }
            number += 1 + number / 8
        }
        #expect(failures > 3)
        let last = try TestClient(directory: directory)
        _ = await last.client.flush()
        #expect(last.transport.batches.flatMap(\.ids).filter(Set(ids).contains) == ids)
        await last.client.shutdown(within: .zero)
    }

    /// What happened to one queue while its disk failed.
    private struct History {
        var delivered: [EventID] = []
        var errors = 0
        var asides = 0
        var counters = QueueCounters(of: .derived(name: "install", key: "1"))
    }

    private static let attempts = 8

    /// Opens a queue, stores, delivers, stores more, closes, opens again and drains, each step as often as it takes, as the client does.
    private func history(_ disk: FaultyDisk, _ path: String, _ durability: Durability) async throws -> History {
        var history = History()
        @discardableResult
        func step<Value>(_ body: () async throws -> Value) async throws -> Value {
            for _ in 1..<Self.attempts {
                do { return try await body() } catch { history.errors += 1 }
            }
            return try await body()
        }
        func open() throws -> QueueFile { try QueueFile.open(path, durability: durability) }
        func deliver(_ queue: QueueFile, limit: Int) async throws -> Bool {
            let batch = try queue.nextBatch(.oldest(limit: limit), maximumBytes: .max, now: 0)
            if batch.events.isEmpty { return false }
            // The server has them from here on; what cannot be settled is sent again, and it finds duplicates.
            history.delivered += batch.events.map(\.id)
            try queue.settle(BatchOutcome(settlements: batch.events.map { Settlement(event: $0, fate: .stored) }), now: 0)
            return true
        }
        var queue = try await step { try open() }
        for first in stride(from: Int64(1), to: 31, by: 10) {
            try await step { try queue.append((first..<first + 10).map { Self.event($0) }[...]) }
        }
        _ = try await step { try await deliver(queue, limit: 7) }
        try await step { try queue.append((31...40).map { Self.event($0) }[...]) }
        queue.close()
        queue = try await step { try open() }
        while try await step({ try await deliver(queue, limit: 15) }) {}
        history.counters = queue.counters
        history.asides = try queue.directory.filesSetAside().count
        queue.close()
        return history
    }

    @Test(
        "whichever operation fails, and whether one or several do: every event arrives, in order, and nothing is set aside",
        arguments: [Code.read, Code.write, Code.fsync, Code.full], [1, 2])
    func anyOperationMayFail(code: Int32, count: Int) async throws {
        var met = 0
        var number = 0
        let expected = (1...40).map { Self.event($0).id }
        let operations: Set<FaultyDisk.Operation> =
            switch code {
            case Code.read: [.read, .open]
            case Code.fsync: [.sync]
            default: [.write, .truncate]
            }
        while true {
            let directory = TemporaryDirectory()
            let disk = FaultyDisk(directory.path)
            disk.fail(FaultyDisk.Fault(at: number, count: count, code: code, operations: operations))
            let history = try await history(disk, directory.path + "/queue", .power)
            if disk.failures == 0 { break }
            met += 1
            var seen: Set<EventID> = []
            let firsts = history.delivered.filter { seen.insert($0).inserted }
            #expect(firsts == expected, "operation \(number): each event, first sent in its order (I1, R9)")
            #expect(history.counters.isBalanced && history.counters.waiting == 0, "operation \(number) (I12)")
            #expect(history.counters.created == 40, "operation \(number) (I7)")
            #expect(history.asides == 0, "operation \(number): a disk that fails is no damaged file")
            number += 1
        }
        #expect(met > 10, "operations failed: \(met)")
    }

    @Test("an event that waits already is flushed all the same for who asks for `power`: its own commit may have promised less (I6)")
    func repeatedEventIsFlushed() throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let queue = try QueueFile.open(directory.path + "/queue", durability: .power)
        try queue.append([Self.event(1)])
        disk.fail(FaultyDisk.Fault(at: 0, count: 100, code: Code.fsync, operations: [.sync]))
        #expect(throws: DatabaseError.self) { try queue.append([Self.event(1)]) }
        disk.fail(nil)
        #expect(try queue.append([Self.event(1)]).sequences == [nil])
    }

    @Test("control: a queue that takes any failure for damage loses its place, and is seen")
    func takingFailureForDamageIsSeen() async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        disk.fail(FaultyDisk.Fault(at: 80, count: 1, code: Code.corrupt, operations: [.write]))
        let history = try await history(disk, directory.path + "/queue", .power)
        #expect(disk.failures == 1)
        #expect(history.asides == 1, "the layer's code reaches the queue")
    }

    @Test("a client whose disk fails tells who waits, and delivers all once it works again, an earlier failure included (I6)")
    func clientGoesOn() async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let test = try TestClient(directory: directory)
        try await test.track(0..<10)
        disk.fail(FaultyDisk.Fault(at: 0, count: .max / 2, code: Code.write, operations: [.write]))
        let id = try #require(EventID(uuidString: "01976543-0000-7000-8000-000000000001"))
        do {
            _ = try await test.client.trackDurably("failing", id: id)
            Issue.record("nothing can be written")
        } catch {
            guard case .notStored(let failure) = error else { throw error }
            #expect(failure.code == Code.write)
        }
        #expect(await test.client.status().storageFailure != nil)
        disk.fail(nil)
        test.clock.advance(by: .seconds(600))
        _ = try await test.client.trackDurably("failing", id: id)
        let report = await test.client.flush()
        #expect(report.stored == 11 && report.remaining == 0)
        #expect(await test.client.status().isBalanced)
        await test.client.shutdown(within: .zero)
    }
}
