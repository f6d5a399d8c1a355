import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Pages that are noise where their rows are listed: SQLite takes some of it for rows, and for the end of those that were asked for.
extension QueueDamageTests {
    /// The numbers of rows that are what was stored, each looked for by its own number.
    private func readable(_ path: String, _ events: [EventID: Int64]) throws -> Set<Int64> {
        var configuration = Configuration()
        configuration.readonly = true
        return try DatabaseQueue(path: path, configuration: configuration).unsafeRead { db in
            Set(
                events.values.filter { number in
                    let row = try? Row.fetchOne(db.cachedStatement(sql: "SELECT * FROM queue WHERE row = ?"), arguments: [number])
                    return row.flatMap { try? WaitingRow($0) }.map { events[$0.id] } == number
                })
        }
    }

    /// What a file holds of whose pages of rows some have noise over their first places, and some stand where another should.
    private func noisy(_ whole: [UInt8], pages: Int, using random: inout SeededRandom) -> [UInt8] {
        var bytes = whole
        let leaves = (1..<whole.count / 4_096).filter { whole[$0 * 4_096] == 0x0D && whole[$0 * 4_096 + 4] > 4 }
        for _ in 0..<pages {
            let leaf = Int.random(in: 1..<leaves.count - 1, using: &random)
            let page = leaves[leaf] * 4_096
            if Bool.random(using: &random) {
                // Beside the noise, where nothing else shows that rows were left out, from whichever side they are read.
                let (other, side) = (leaves[Int.random(in: 0..<leaves.count, using: &random)] * 4_096, Bool.random(using: &random) ? 1 : -1)
                let beside = leaves[leaf + side] * 4_096
                bytes.replaceSubrange(beside..<beside + 4_096, with: whole[other..<other + 4_096])
            }
            let length = Int.random(in: 2...92, using: &random)
            for index in page + 8..<page + 8 + length { bytes[index] = UInt8.random(in: 0...255, using: &random) }
        }
        return bytes
    }

    @Test(
        "rows between pages of noise, or of others' rows, are found: an end that no error tells of is not believed (I11, D17)",
        arguments: [1, 3, 6])
    func rowsBetweenNoiseAreFound(seed: UInt64) throws {
        var random = SeededRandom(seed: Self.damages == nil ? seed : .random(in: 0...999_999))
        print("seed of rowsBetweenNoiseAreFound: \(random.seed)")
        let count: Int64 = 1_500
        let whole = try make(count)
        let events = Dictionary(uniqueKeysWithValues: (1...count).map { (Self.event($0).id, $0) })
        var gone = 0
        for round in 0..<(Self.damages ?? 25) {
            let bytes = noisy(whole, pages: round % 5 + 1, using: &random)
            try Data(bytes).write(to: URL(fileURLWithPath: file))
            let expected = try readable(file, events)
            var found: Set<Int64> = []
            var source = try #require(try QueueSalvage(path: file, .everything))
            defer { source.close() }
            try source.rows(of: "queue") { row in
                guard let event = try? WaitingRow(row) else { return false }
                found.insert(try #require(events[event.id]))
                return true
            }
            gone += Int(count) - expected.count
            #expect(expected.subtracting(found).isEmpty, "round \(round): \(expected.subtracting(found).count) of \(expected.count)")
        }
        #expect(gone > 0, "control: the noise costs something")
    }
}
