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

    @Test("pages are given back when they are worth a log, and then if nothing waits or three quarters are free; at once on a full disk")
    func givingBack() {
        let room = QueueRoom(freeBytes: nil)
        let much = room.logPages
        func given(_ free: Int, of pages: Int, isTight: Bool = false, isEmpty: Bool = false) -> Int {
            room.pagesToGiveBack(freePages: free, filePages: pages, isTight: isTight, isEmpty: isEmpty)
        }
        #expect(given(1, of: 100_000, isTight: true) == 1)
        #expect(given(much - 1, of: much, isEmpty: true) == 0 && given(much, of: 100_000, isEmpty: true) == much)
        #expect(given(750_000, of: 1_000_000) == 0 && given(750_001, of: 1_000_000) == 750_001)
        #expect(given(much - 1, of: much) == 0)
    }
}
