import TestSupport
import Testing

@testable import HapaxClient

@Suite("QueueRoom (I13)", .endsWhenItHangs)
struct QueueRoomTests {
    @Test("log, transactions and ballast fit the disk, from the smallest to the largest; an unknown one counts as large")
    func shares() {
        let mebibyte = 1024 * 1024
        let rooms = [0, 16 * 100 * 1024, 16 * 2 * Int64(mebibyte), .max, nil].map { QueueRoom(freeBytes: $0) }
        #expect(rooms.map(\.logBytes) == [64 * 1024, 100 * 1024, 2 * mebibyte, 4 * mebibyte, 4 * mebibyte])
        #expect(rooms.map(\.groupBytes) == [64 * 1024, 100 * 1024, mebibyte, mebibyte, mebibyte])
        #expect(rooms.map(\.ballastBytes) == rooms.map { 2 * $0.logBytes + 64 * 1024 })
    }

    @Test("a queue that has been drained gives its room back, and goes on; what waits in it stays (I1, I7)")
    func drainedFileShrinks() throws {
        let directory = TemporaryDirectory()
        let queue = try QueueFile.open(directory.path)
        for first in stride(from: Int64(1), to: 9_001, by: 500) {
            try queue.append((first..<first + 500).map { PreparedEvent.sample($0, fill: 1_000) })
        }
        #expect(try #require(try FileStatus.size(of: queue.directory.databasePath(1))) > 8 * 1024 * 1024)
        while queue.counters.waiting > 500 {
            let batch = try queue.nextBatch(.oldest(limit: 500), maximumBytes: .max, now: 0)
            try queue.settle(BatchOutcome(settlements: batch.events.map { Settlement(event: $0, fate: .stored) }), now: 0)
        }
        #expect(try #require(try FileStatus.size(of: queue.directory.databasePath(1))) < 5 * 1024 * 1024)
        #expect(try queue.append([PreparedEvent.sample(9_001, fill: 10)]).sequences == [9_001])
        queue.close()
        let next = try QueueFile.open(directory.path)
        let left = try next.nextBatch(.oldest(limit: 1_000), maximumBytes: .max, now: 0).events.map(\.sequence)
        #expect(left == Array(8_501...9_001))
        next.close()
    }

    @Test("a file is written anew when its free pages are worth a log, on a full disk each, and what it holds is no more than one")
    func rewriting() {
        let room = QueueRoom(freeBytes: nil)
        let log = room.logPages
        func isDue(free: Int, held: Int, isTight: Bool = false) -> Bool {
            room.isWorthRewriting(freePages: free, filePages: free + held, isTight: isTight)
        }
        #expect(isDue(free: log, held: log) && isDue(free: 1_000_000, held: 2) && isDue(free: 1, held: log, isTight: true))
        #expect(!isDue(free: log - 1, held: 2) && !isDue(free: 1_000_000, held: log + 1) && !isDue(free: 0, held: 2, isTight: true))
    }
}
