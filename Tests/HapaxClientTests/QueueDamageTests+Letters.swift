import Foundation
import GRDB
import HapaxModel
import Testing

@testable import HapaxClient

/// Dead letters in damaged files.
extension QueueDamageTests {
    @Test("a dead letter that two damaged files hold is not told as lost with the second (I12)")
    func lettersInTwoFilesAreNotLost() async throws {
        try makeDamaged()
        var queue = try open("second")
        await queue.salvage()
        #expect(queue.books.letters == 1)
        // As after a crash before the salvage had ended, and damage of the file that took over.
        try await queue.database.write { try $0.execute(sql: "UPDATE damaged_files SET is_salvaged = 0") }
        queue.close()
        try FileManager.default.removeItem(atPath: file + ".damaged-1.salvaged")
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-2")
        queue = try open("third")
        await queue.salvage()
        #expect(queue.latestDamage?.salvagedDeadLetters == 1 && queue.latestDamage?.lostDeadLetters == 0)
        #expect(queue.books.letters == 1 && queue.books.drops.byReason["damaged_dead_letter"] == nil && queue.books.isBalanced)
        queue.close()
    }
}
