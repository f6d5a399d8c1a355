import Foundation
import GRDB
import HapaxModel
import Testing

@testable import HapaxClient

/// Many pages of rows beside each other that cannot be read.
extension QueueDamageTests {
    @Test("what lies behind a hole of thousands of rows is found, be it as long as it is (I11, D17)")
    func rowsBehindAHoleAreFound() async throws {
        let count: Int64 = 24_000
        let events = (1...count).map { PreparedEvent.sample($0, fill: 10) }
        let first = try open("first")
        try first.append(events)
        first.close()
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        // More than are given up after where nobody knows of any rows; and one page more, so that reading from the end is no help.
        for page in Set(try leaves(of: 8_300...17_700, 23_900...23_900)) {
            for index in page * 4_096..<page * 4_096 + 100 { bytes[index] = 0xFF }
        }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
        let queue = try open("second")
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        let lost = try #require(damage.lost)
        #expect(damage.salvaged + lost == count && lost > 9_400 && lost < 9_500)
        #expect(queue.books.isBalanced)
        queue.close()
    }

    /// The pages that hold these rows: SQLite's own table of pages (https://www.sqlite.org/dbstat.html) is not compiled in, so they are found
    /// by their bytes.
    private func leaves(of stretches: ClosedRange<Int64>...) throws -> [Int] {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: file))
        let wanted = Dictionary(
            uniqueKeysWithValues: stretches.joined().map { (PreparedEvent.sample($0, fill: 10).id.description, $0) })
        return (1..<bytes.count / 4_096).filter { page in
            guard bytes[page * 4_096] == 0x0D else { return false }
            let text = String(decoding: bytes[page * 4_096..<(page + 1) * 4_096], as: UTF8.self)
            return text.components(separatedBy: #""event_id":""#).dropFirst().contains { wanted[String($0.prefix(36))] != nil }
        }
    }
}
