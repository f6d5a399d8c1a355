import Foundation
import GRDB
import HapaxModel
import HapaxSQLite
import TestSupport
import Testing

@testable import HapaxClient

/// A log and the file that it belongs to: without it, behind a link, set aside with it, copied.
extension QueueDamageTests {
    @Test(
        "a file that was cut to nothing, or is gone, but for its log: what the log holds is found again (I1, I11, D17)",
        arguments: [true, false], [true, false])
    func logWithoutAFileIsRead(isGone: Bool, isChanged: Bool) async throws {
        var (_, log, frames) = try makeKilled()
        if isChanged { log[32 + frames / 2 * 4_120 + 18] ^= 0x10 }
        try restore(Data(), log)
        // Who only looks must not make SQLite remove the log.
        #expect(throws: StorageFailure.self) { try QueueReader(directory: QueueDirectory(path: path)) }
        if isGone { try FileManager.default.removeItem(atPath: file) }
        let queue = try open()
        #expect(asides() == ["queue.sqlite.damaged-1"])
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == 40 && queue.latestDamage?.lost == 0)
        let batch = try queue.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0)
        #expect(batch.events.map(\.id) == (1...40).map { Self.event($0).id })
        queue.close()
    }

    @Test("behind a bit that can be mended a stretch that cannot: all before that one is read, and that more is lost is told (I1, I11)")
    func mendedLogEndsWhereItMust() async throws {
        var (database, log, frames) = try makeKilled()
        for place in 32 + frames / 2 * 4_120 + 24..<32 + frames / 2 * 4_120 + 124 { log[place] ^= 0x55 }
        try restore(database, log)
        var queue = try open()
        await queue.salvage()
        let alone = try #require(queue.latestDamage)
        queue.close()
        log[32 + 20 * 4_120 + 300] ^= 0x10
        try restore(database, log)
        queue = try open()
        await queue.salvage()
        let both = try #require(queue.latestDamage)
        #expect(both.salvaged == alone.salvaged && both.salvaged > 10 && both.lost == nil)
        queue.close()
    }

    @Test("behind a bit that can be mended a frame of zeros, and commits behind it: that more is lost is told (I1, I11)")
    func zerosBehindAMendedBitAreTold() async throws {
        var (database, log, frames) = try makeKilled()
        log[32 + 20 * 4_120 + 300] ^= 0x10
        log.replaceSubrange(32 + frames / 2 * 4_120..<32 + (frames / 2 + 1) * 4_120, with: Data(count: 4_120))
        try restore(database, log)
        let queue = try open()
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.salvaged > 10 && damage.salvaged < 40 && damage.lost == nil)
        queue.close()
    }

    @Test("a log whose file is gone is not given to a file that was set aside before, and not lost with it (I1, I11)")
    func logWithoutAFileIsNobodyElses() async throws {
        let (database, log, _) = try makeKilled()
        try restore(database, log)
        try Data("noise".utf8).write(to: URL(fileURLWithPath: file + ".damaged-1"))
        try FileManager.default.removeItem(atPath: file)
        let queue = try open()
        #expect(asides() == ["queue.sqlite.damaged-1", "queue.sqlite.damaged-2"])
        await queue.salvage()
        let batch = try queue.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0)
        #expect(batch.events.map(\.id) == (1...40).map { Self.event($0).id })
        queue.close()
    }

    @Test("the log of a queue that is a link lies beside what it links to (I11)")
    func logOfALinkIsFound() async throws {
        let (database, log, frames) = try makeKilled()
        var changed = log
        changed[32 + frames / 2 * 4_120 + 300] ^= 0x10
        try restore(database, changed)
        let target = directory.path + "/elsewhere"
        try FileManager.default.moveItem(atPath: path, toPath: target)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try FileManager.default.createSymbolicLink(atPath: file, withDestinationPath: target + "/queue.sqlite")
        let queue = try open()
        await queue.salvage()
        let batch = try queue.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0)
        #expect(batch.events.map(\.id) == (1...40).map { Self.event($0).id })
        queue.close()
        #expect(try Data(contentsOf: URL(fileURLWithPath: target + "/queue.sqlite")) == database, "a damaged file is never changed (D17)")
    }

    @Test("what a salvage copies is for its owner only, as the queue's files are (I14)", arguments: [true, false])
    func copiesArePrivate(withLog: Bool) throws {
        let (database, log, _) = try makeKilled()
        try restore(database, log)
        for suffix in ["", "-wal"] { try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file + suffix) }
        for extent in [SalvageCopy.Extent.state, .everything] {
            DatabaseFile.remove(path + "/copy")
            try SalvageCopy.make(of: file, at: path + "/copy", extent, log: withLog ? log : nil)
            for suffix in ["", "-wal"] {
                let attributes = try FileManager.default.attributesOfItem(atPath: path + "/copy" + suffix)
                #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == 0o600, "copy\(suffix)")
            }
        }
    }

    @Test("a crash while a file is set aside: whatever of it was renamed, the next opening ends it (I1, I11)", arguments: 0...3)
    func settingAsideIsEnded(renames: Int) async throws {
        let (database, log, _) = try makeKilled()
        try restore(database, log)
        let aside = file + ".damaged-1"
        if renames > 0 { try Data().write(to: URL(fileURLWithPath: aside + ".moving")) }
        if renames > 1 { try FileManager.default.moveItem(atPath: file, toPath: aside) }
        if renames > 2 { try FileManager.default.moveItem(atPath: file + "-wal", toPath: aside + "-wal") }
        let queue = try open()
        await queue.salvage()
        #expect(asides() == (renames > 1 ? ["queue.sqlite.damaged-1"] : []))
        #expect(!FileManager.default.fileExists(atPath: aside + ".moving"))
        let batch = try queue.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0)
        #expect(batch.events.map(\.id) == (1...40).map { Self.event($0).id })
        queue.close()
    }

    @Test("a file that was cut to nothing is no new queue: that something is lost is told (I11)")
    func emptyFileIsDamage() async throws {
        try restore(Data(), Data())
        try FileManager.default.removeItem(atPath: file + "-wal")
        let queue = try open()
        #expect(asides() == ["queue.sqlite.damaged-1"])
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.salvaged == 0 && damage.lost == nil, "nobody knows how many")
        queue.close()
    }

    @Test("a table of the same name in a log of somebody else: nothing is taken from it, and no copy stays (D17)")
    func foreignLogHasNothing() async throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        var configuration = Configuration()
        configuration.journalMode = .wal
        let other = try DatabaseQueue(path: file, configuration: configuration)
        try await other.write { try $0.execute(sql: "CREATE TABLE queue (name TEXT); INSERT INTO queue VALUES ('mine')") }
        let (database, log) = (
            try Data(contentsOf: URL(fileURLWithPath: file)), try Data(contentsOf: URL(fileURLWithPath: file + "-wal"))
        )
        try other.close()
        try restore(database, log)
        let queue = try open()
        await queue.salvage()
        #expect(asides().count == 1 && queue.unsalvagedFiles == 0 && queue.books.depth == 0 && queue.books.letters == 0)
        #expect(try FileManager.default.contentsOfDirectory(atPath: path).filter { $0.contains("copy") } == [])
        queue.close()
    }
}
