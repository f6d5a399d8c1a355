import Foundation
import GRDB
import HapaxModel
import Testing

@testable import HapaxClient

/// Many pages of rows beside each other that cannot be read.
extension QueueDamageTests {
    @Test("row numbers so far apart that the last is beyond all counts are no damage", arguments: [8_192, 999_999] as [Int64])
    func farNumbersAreNoDamage(number: Int64) throws {
        try open("first").close()
        try Data().write(to: URL(fileURLWithPath: file + ".damaged-\(number)"))
        for round in 1...3 as ClosedRange<Int64> {
            let queue = try open("other")
            try queue.append([Self.event(round)])
            let batch = try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)
            try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0)
            #expect(queue.installID == Self.install && queue.books.stored == round && asides().count == 1)
            queue.close()
        }
    }

    @Test("a row whose number is noise is taken over under another one, behind which there is room (I1)")
    func impossibleNumbersAreNotKept() async throws {
        let first = try open("first")
        try first.append((1...3).map { Self.event($0) })
        try await first.database.write { try $0.execute(sql: "UPDATE queue SET row = \(Int64.max - 1) WHERE row = 3") }
        try spoilNothing(first)
        try first.append([Self.event(4)])
        await first.salvage()
        // One event has room behind the number before the last.
        for sequence in 5...6 as ClosedRange<Int64> { try first.append([Self.event(sequence)]) }
        let delivered = try await drain(first)
        #expect(delivered.count == 6 && first.books.isBalanced && first.books.depth == 0)
        first.close()
    }

    /// As if damage had been met.
    private func spoilNothing(_ queue: EventQueue) throws {
        _ = try queue.takesOver(from: queue.database, after: DatabaseError(resultCode: .SQLITE_CORRUPT))
    }

    @Test("a last number that leaves none to be given ends nobody")
    func lastNumberIsNoEnd() async throws {
        let queue = try open("first")
        try queue.append([Self.event(1)])
        try await queue.database.write { try $0.execute(sql: "UPDATE sqlite_sequence SET seq = \(Int64.max)") }
        let batch = try queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)
        try queue.settle(batch.events.map { Settlement(event: $0, fate: .stored) }, time: 0)
        #expect(queue.books.stored == 1 && queue.books.isBalanced)
        queue.close()
    }

    @Test("what lies behind a hole of thousands of rows is found, be it as long as it is (I11, D17)")
    func rowsBehindAHoleAreFound() async throws {
        let count: Int64 = 24_000
        let events = (1...count).map { PreparedEvent.sample($0, fill: 10) }
        let first = try open("first")
        try first.append(events)
        first.close()
        // More than are given up after where nobody knows of any rows; and one page more, so that reading from the end is no help.
        try destroy(try leaves(of: [8_300...17_700, 23_900...23_900]))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
        let queue = try open("second")
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        let lost = try #require(damage.lost)
        #expect(damage.salvaged + lost == count && lost > 9_400 && lost < 9_500)
        #expect(queue.books.isBalanced)
        queue.close()
    }

    @Test("every row is found where the books expect some, and the others beside it, whatever a search elsewhere would give up (I11, D17)")
    func expectedRowsAreSearchedForToTheEnd() async throws {
        let count: Int64 = 1_500
        let events = (1...count).map { PreparedEvent.sample($0, fill: 10) }
        let queue = try open("first")
        try queue.append(events)
        // Books that are off at both ends, as others can be that add up.
        try await queue.database.write { db in
            try db.execute(sql: "UPDATE queue SET install_id = x'' WHERE row = \(count)")
            try db.execute(sql: "UPDATE sqlite_sequence SET seq = 1000; UPDATE books SET head = 200, last_sequence = 1000, depth = 1000")
        }
        queue.close()
        // A hole with an island, and a page near each end, so that reading from there is no help.
        let holes = [50...50, 300...300, 420...620, 680...880, 1_250...1_250] as [ClosedRange<Int64>]
        try destroy(try leaves(of: holes))
        var source = try #require(try QueueSalvage(path: file, .everything))
        defer { source.close() }
        #expect(source.head == 200 && source.depth == 1_000)
        source.limits = RowSearch.Limits(vainStretches: 4, vainStretchesOfAll: 5, expectedPart: 0, smallPart: 0)
        var found: Set<Int64> = []
        try source.rows(of: "queue") { row in
            found.insert(row["row"])
            return (try? WaitingRow(row)) != nil
        }
        let missing = Set(1...count).subtracting(found)
        for hole in holes { #expect(missing.isSuperset(of: hole), "control: its pages are noise") }
        // A page holds less than thirty.
        #expect(
            missing.allSatisfy { row in holes.contains { ($0.lowerBound - 30...$0.upperBound + 30).contains(row) } }, "\(missing.sorted())")
        #expect(found.isSuperset(of: 650...651), "the island")
    }

    /// The pages that hold these rows: SQLite's own table of pages (https://www.sqlite.org/dbstat.html) is not compiled in, so they are found
    /// by their bytes.
    private func leaves(of stretches: [ClosedRange<Int64>]) throws -> [Int] {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        let wanted = Dictionary(
            uniqueKeysWithValues: stretches.joined().map { (PreparedEvent.sample($0, fill: 10).id.description, $0) })
        return (1..<bytes.count / 4_096).filter { page in
            guard bytes[page * 4_096] == 0x0D else { return false }
            let text = String(decoding: bytes[page * 4_096..<(page + 1) * 4_096], as: UTF8.self)
            return text.components(separatedBy: #""event_id":""#).dropFirst().contains { wanted[String($0.prefix(36))] != nil }
        }
    }

    private func destroy(_ pages: [Int]) throws {
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        for page in pages { for index in page * 4_096..<page * 4_096 + 100 { bytes[index] = 0xFF } }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
    }
}
