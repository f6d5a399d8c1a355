import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Damage in the log of a queue whose process was killed.
extension QueueDamageTests {
    /// Database and log as a kill leaves them, with some commits in the log, and how many frames it has.
    private func makeKilled() throws -> (database: Data, log: Data, frames: Int) {
        let queue = try open("first")
        for number in 1...40 { try queue.append([Self.event(Int64(number))][...]) }
        let (database, log) = (
            try Data(contentsOf: URL(fileURLWithPath: file)), try Data(contentsOf: URL(fileURLWithPath: file + "-wal"))
        )
        queue.close()
        return (database, log, (log.count - 32) / 4_120)
    }

    private func restore(_ database: Data, _ log: Data) throws {
        try? FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try database.write(to: URL(fileURLWithPath: file))
        try log.write(to: URL(fileURLWithPath: file + "-wal"))
    }

    @Test("a changed bit in the log, in its head or before its last commit: it is set aside with its file, and told (I1, I7, I11)")
    func changedLogIsDamage() async throws {
        let (database, log, frames) = try makeKilled()
        #expect(frames > 40)
        var places: [Int] = [0, 5, 17, 25]
        for frame in [1, 7, frames / 2] {
            for offset in [2, 6, 9, 18, 300] { places.append(32 + frame * 4_120 + offset) }
        }
        for place in places {
            var changed = log
            changed[place] ^= 0x10
            try restore(database, changed)
            let queue = try open()
            #expect(asides().count == 1, "byte \(place)")
            #expect(queue.installID != Self.install, "its sequences must not be given again")
            #expect(FileManager.default.fileExists(atPath: file + ".damaged-1-wal"), "byte \(place)")
            await queue.salvage()
            #expect(queue.latestDamage?.isSalvaged == true && queue.latestDamage?.lost == nil, "nobody knows how many")
            queue.close()
        }
    }

    @Test("a log as a kill leaves it is whole: cut off anywhere, or with an end that was never written")
    func killedLogIsWhole() async throws {
        let (database, log, frames) = try makeKilled()
        for length in [0, 20, 32, 40, 32 + 4_120, 32 + 5 * 4_120 + 24, 32 + (frames - 1) * 4_120 + 3_000, log.count] {
            try restore(database, log.prefix(length))
            let queue = try open()
            #expect(asides().isEmpty, "cut off at \(length)")
            queue.close()
        }
        // A last frame whose page is still that of an earlier round.
        var torn = log
        for index in torn.count - 4_096..<torn.count { torn[index] = 0x55 }
        try restore(database, torn)
        let queue = try open()
        #expect(asides().isEmpty && queue.books.depth >= 39)
        queue.close()
    }
}
