import Testing

@testable import HapaxClient

@Suite("QueueRoom (I13)", .timeLimit(.minutes(20)))
struct QueueRoomTests {
    @Test("log, transactions and ballast fit the disk, from the smallest to the largest; an unknown one counts as large")
    func shares() {
        let mebibyte = 1024 * 1024
        let rooms = [0, 16 * 100 * 1024, 16 * 2 * Int64(mebibyte), .max, nil].map { QueueRoom(freeBytes: $0) }
        #expect(rooms.map(\.logBytes) == [64 * 1024, 100 * 1024, 2 * mebibyte, 4 * mebibyte, 4 * mebibyte])
        #expect(rooms.map(\.groupBytes) == [64 * 1024, 100 * 1024, mebibyte, mebibyte, mebibyte])
        #expect(rooms.map(\.ballastBytes) == rooms.map { 2 * $0.logBytes + 64 * 1024 })
    }

    @Test("a file is written anew when its free pages are worth a log and what it holds is no more than one")
    func rewriting() {
        let room = QueueRoom(freeBytes: nil)
        let log = room.logPages
        func isDue(free: Int, held: Int) -> Bool { room.isWorthRewriting(freePages: free, filePages: free + held) }
        #expect(isDue(free: log, held: log) && isDue(free: 1_000_000, held: 2))
        #expect(!isDue(free: log - 1, held: 2) && !isDue(free: 1_000_000, held: log + 1))
    }
}
