#if canImport(Glibc)
import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite(
    "A full disk (I1, I13)", .enabled(if: TinyDisk.isPossible, "mounting a file system takes root"), .endsWhenItHangs)
struct FullDiskTests {
    private func queue(_ disk: TinyDisk) throws -> QueueFile { try QueueFile.open(disk.path + "/queue") }

    private func event(_ number: Int64) -> PreparedEvent { .sample(number, fill: 500) }

    /// - Returns: How many events went in before the disk was full.
    private func fill(_ queue: QueueFile, from first: Int64 = 1, group: Int64 = 20) throws -> Int64 {
        var next = first
        while true {
            do {
                try queue.append((next..<next + group).map { event($0) }[...])
                next += group
            } catch let error as DatabaseError where error.resultCode == .SQLITE_FULL {
                return next - first
            }
        }
    }

    private func drain(_ queue: QueueFile) throws -> [EventID] {
        var ids: [EventID] = []
        while true {
            let batch = try queue.nextBatch(.oldest(limit: 50), maximumBytes: .max, now: 0)
            if batch.events.isEmpty { return ids }
            try queue.settle(BatchOutcome(settlements: batch.events.map { Settlement(event: $0, fate: .stored) }), now: 0)
            ids += batch.events.map(\.id)
        }
    }

    @Test("a queue that is damaged on a full disk begins a new file in the ballast's room (I11, I13)")
    func damageOnAFullDiskFindsRoom() async throws {
        let disk = try #require(TinyDisk(bytes: 2 * 1024 * 1024))
        let queue = try queue(disk)
        try queue.append((1...20).map { event($0) }[...])
        disk.fill()
        var isDamaged = true
        try queue.reading { _ in
            defer { isDamaged = false }
            if isDamaged { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        }
        #expect(queue.isRecovering && queue.hasFile)
        disk.unfill()
        while try queue.recoverChunk(now: 0, makeEvent: { _, id, _ in event(99) }) {}
        #expect(try drain(queue) == ((1...20) + [99]).map { event($0).id })
        queue.close()
    }

    @Test("a start writes no ballast on its caller's thread; the first event that is stored does, before it is (C19, I13)")
    func startMakesNoBallast() async throws {
        let test = try TestClient()
        let ballast = test.client.file.directory.ballastPath
        #expect(!FileManager.default.fileExists(atPath: ballast))
        try await test.client.trackDurably("first")
        #expect(try FileStatus.size(of: ballast) == Int64(test.client.file.room.ballastBytes))
        await test.client.shutdown(within: .zero)
    }

    @Test("a ballast for which there is no room takes none, and is made once there is")
    func ballastIsWholeOrNone() throws {
        let disk = try #require(TinyDisk(bytes: 1024 * 1024))
        disk.fill(except: 100_000)
        let free = disk.freeBytes
        var ballast = Ballast(path: disk.path + "/ballast", bytes: 500_000)
        #expect(!ballast.isKept && disk.freeBytes == free)
        disk.unfill()
        #expect(ballast.keep() && disk.freeBytes <= 1024 * 1024 - 500_000)
    }

    @Test("a full disk refuses events and loses none; delivered rows leave, the file shrinks, and it goes on", arguments: [1, 2])
    func fullDiskDrainsAndGoesOn(mebibytes: Int) throws {
        let disk = try #require(TinyDisk(bytes: mebibytes * 1024 * 1024))
        let queue = try queue(disk)
        #expect(queue.ballast.withLock { $0.keep() })
        let before = disk.freeBytes
        var first: Int64 = 1
        for round in 1...3 {
            let count = try fill(queue, from: first)
            #expect(count >= 400 * Int64(mebibytes), "round \(round): the fault happened late enough to matter")
            // Somebody else takes what little is left.
            disk.fill()
            #expect(disk.freeBytes == 0)
            #expect(queue.counters.waiting == count)
            let ids = try drain(queue)
            #expect(ids == (first..<first + count).map { event($0).id }, "nothing lost, nothing twice, in order (R9)")
            disk.unfill()
            first += count
        }
        #expect(queue.counters.waiting == 0)
        #expect(disk.freeBytes >= before - 200 * 1024, "the file shrank")
        #expect(FileManager.default.fileExists(atPath: queue.directory.ballastPath), "the ballast is back")
        queue.close()
    }

    @Test("a queue on a full disk opens, keeps what it has, and takes events only when there is room again")
    func fullDiskOpens() throws {
        let disk = try #require(TinyDisk(bytes: 2 * 1024 * 1024))
        do {
            let queue = try queue(disk)
            try queue.append((1...20).map { event($0) }[...])
            queue.close()
        }
        disk.fill()
        let queue = try queue(disk)
        #expect(queue.counters.waiting == 20)
        disk.fill()
        let more = try fill(queue, from: 21, group: 1)
        disk.unfill()
        try queue.append([event(21 + more)][...])
        #expect(try drain(queue).count == 21 + Int(more))
        queue.close()
    }

    @Test("while the ballast cannot be held nothing is taken, though it would fit: that room is for removing (I13)")
    func roomForRemovingIsKept() throws {
        let disk = try #require(TinyDisk(bytes: 1024 * 1024))
        let queue = try queue(disk)
        try queue.append((1...20).map { event($0) }[...])
        queue.ballast.withLock { $0.release() }
        disk.fill(except: 100 * 1024)
        #expect(throws: DatabaseError.self) { try queue.append([event(21)][...]) }
        #expect(try drain(queue).count == 20)
        disk.unfill()
        try queue.append([event(21)][...])
        #expect(queue.counters.waiting == 1)
        queue.close()
    }

    @Test("control: without a ballast a full disk refuses to remove delivered rows")
    func withoutBallastNothingLeaves() throws {
        let disk = try #require(TinyDisk(bytes: 1024 * 1024))
        let queue = try queue(disk)
        _ = try fill(queue)
        queue.ballast.withLock { $0.release() }
        disk.fill()
        #expect(throws: DatabaseError.self) { try drain(queue) }
        #expect(queue.counters.waiting > 0)
        queue.close()
    }

    @Test("a client whose disk is full tells who waits, and stores everything once there is room (I6)")
    func clientWaitsForRoom() async throws {
        let disk = try #require(TinyDisk(bytes: 1024 * 1024))
        let clock = TestClock()
        let transport = ScriptedTransport()
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "test-key", queueDirectory: disk.path + "/queue")
        configuration.uploads.interval = nil
        let client = try EventClient.start(configuration, clock: clock) { transport }
        var stored: Int64 = 0
        let fill = PropertyValue.string(String(repeating: "x", count: 2_000))
        while case .success = await Result.of({ try await client.trackDurably("e", properties: ["fill": fill]) }) { stored += 1 }
        #expect(stored > 50)
        #expect(await client.status().storageFailure?.code == 13)
        let report = await client.flush()
        #expect(report.stored >= Int(stored))
        clock.advance(by: .seconds(600))
        try await client.writer.barrier()
        _ = await client.flush()
        let status = await client.status()
        #expect(status.stored == stored + 1 && status.depth == 0 && status.inMemory == 0, "the one that could not be stored yet, too")
        await client.shutdown(within: .zero)
    }
}

extension Result where Failure == any Error {
    fileprivate static func of(_ body: () async throws -> Success) async -> Self {
        do { return .success(try await body()) } catch { return .failure(error) }
    }
}
#endif
