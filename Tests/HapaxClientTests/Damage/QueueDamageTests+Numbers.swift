import Foundation
import HapaxModel
import Testing

@testable import HapaxClient

/// Rows that have changed in their numbers, and in their bytes as well.
extension QueueDamageTests {
    @Test("a changed row that has taken another's number takes nothing else from it: all other events are found (I1, I3, I11)")
    func changedRowTakesNoTurn() async throws {
        let whole = try make(60)
        let leaves = (1..<whole.count / 4_096).filter { whole[$0 * 4_096] == 0x0D && whole[$0 * 4_096 + 4] > 4 }
        let page = leaves[leaves.count / 2] * 4_096
        // A cell's length takes two bytes, then comes the row number in one (https://www.sqlite.org/fileformat2.html#b_tree_pages).
        let cells = (0..<Int(whole[page + 4])).map { page + Int(whole[page + 8 + 2 * $0]) << 8 + Int(whole[page + 9 + 2 * $0]) }
        for cell in [cells[3], cells[cells.count - 1]] {
            for other in cells where other != cell {
                var bytes = whole
                bytes[cell + 2] = whole[other + 2]
                bytes[cell + 100] ^= 0x01
                try? FileManager.default.removeItem(atPath: path)
                try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
                try Data(bytes).write(to: URL(fileURLWithPath: file))
                try Data().write(to: URL(fileURLWithPath: file + "-wal"))
                let queue = try open()
                let count = try await drain(queue).count
                let letters = try queue.deadLetters(after: 0, limit: 9).map(\.reason).filter { $0 == "damaged" }.count
                #expect(count == 59 && letters == 1 && queue.books.drops.byReason.isEmpty, "\(whole[cell + 2]) as \(whole[other + 2])")
                #expect(queue.books.isBalanced)
                queue.close()
            }
        }
    }
}
