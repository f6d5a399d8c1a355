import Foundation
import GRDB
import HapaxModel
import HapaxSQLite
import TestSupport
import Testing

@testable import HapaxClient

/// What is no damage, though a queue did not end well: what a kill, a failed flush or the next round leaves in a log.
extension QueueDamageTests {
    /// A queue with five events, then so many commits that fail, of so many events each, then `later` that succeed; database and log as a
    /// kill leaves them.
    func makeLeftovers(_ failing: [Int], later: Int) throws -> (database: Data, log: Data, events: [EventID]) {
        let disk = FaultyDisk(path)
        let queue = try open("first", .power)
        for number in 1...5 { try queue.append([Self.event(Int64(number))][...]) }
        for count in failing {
            disk.fail(FaultyDisk.Fault(at: 0, count: 1, code: ResultCode.SQLITE_IOERR_FSYNC.rawValue, operations: [.sync]))
            #expect(throws: DatabaseError.self) { try queue.append((100..<100 + Int64(count)).map { Self.event($0) }[...]) }
        }
        disk.fail(nil)
        for number in 6..<6 + later { try queue.append([Self.event(Int64(number))][...]) }
        defer { queue.close() }
        return (
            try Data(contentsOf: URL(fileURLWithPath: file)), try Data(contentsOf: URL(fileURLWithPath: file + "-wal")),
            (1..<6 + later).map { Self.event(Int64($0)).id }
        )
    }

    @Test(
        "what a failed flush of the disk has left behind later commits is no damage, however long it is (I1, I6)",
        arguments: [1, 2, 10, 60])
    func leftoversAreNoDamage(failing: Int) async throws {
        for later in [1, 2, 5] {
            let (database, log, events) = try makeLeftovers([failing], later: later)
            var changed = log
            changed[5] ^= 0x10
            // Behind a head that has changed nobody knows what it is.
            for (log, isWhole) in [(log, true), (changed, false)] {
                try restore(database, log)
                let next = try open()
                #expect(asides().isEmpty == isWhole && (next.installID == Self.install) == isWhole, "\(failing) before \(later)")
                await next.salvage()
                #expect(isWhole || next.latestDamage?.isSalvaged == true)
                #expect(try next.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0).events.map(\.id) == events)
                next.close()
            }
            try FileManager.default.removeItem(atPath: path)
        }
    }

    @Test("two failed flushes can leave what damage leaves, too: that is told rather than not, and nothing is lost by it (I1, I11)")
    func doubtIsTold() async throws {
        let (database, log, events) = try makeLeftovers([60, 30], later: 1)
        try restore(database, log)
        let next = try open()
        await next.salvage()
        #expect(next.latestDamage?.isSalvaged == true && next.latestDamage?.lost == nil)
        #expect(try next.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0).events.map(\.id) == events)
        next.close()
    }

    @Test("what a failed flush has left at a log's beginning, behind a commit that was cut off there, is no damage (I1, I6)")
    func leftoversAtTheBeginning() throws {
        let disk = FaultyDisk(path)
        let first = try open("first", .power)
        try first.append((1...9).map { Self.event($0) }[...])
        try first.database.writeWithoutTransaction { _ = try $0.checkpoint(.truncate) }
        disk.fail(FaultyDisk.Fault(at: 1, count: 1, code: ResultCode.SQLITE_IOERR_FSYNC.rawValue, operations: [.sync]))
        #expect(throws: DatabaseError.self) { try first.append((10...100).map { Self.event($0) }[...]) }
        disk.fail(nil)
        let database = try Data(contentsOf: URL(fileURLWithPath: file))
        let log = try Data(contentsOf: URL(fileURLWithPath: file + "-wal"))
        first.close()
        #expect(lastCommitted(log) > 3, "control")
        try restore(database, noise(log, in: 0...0))
        let queue = try open()
        #expect(asides().isEmpty && queue.books.depth == 9)
        queue.close()
    }

    @Test("a log whose head is that of the next round, and whose frames are in the file already, is whole")
    func nextRoundIsWhole() throws {
        let first = try open("first")
        for number in 1...40 { try first.append([Self.event(Int64(number))][...]) }
        try first.database.writeWithoutTransaction { _ = try $0.checkpoint(.full) }
        let database = try Data(contentsOf: URL(fileURLWithPath: file))
        let log = try Data(contentsOf: URL(fileURLWithPath: file + "-wal"))
        try first.append([Self.event(41)][...])
        // SQLite begins a round by its head, with other salts.
        let head = try Data(contentsOf: URL(fileURLWithPath: file + "-wal")).prefix(32)
        first.close()
        #expect(head != log.prefix(32), "control")
        try restore(database, head + log.dropFirst(32))
        let queue = try open()
        #expect(asides().isEmpty && queue.books.depth == 40 && queue.installID == Self.install)
        queue.close()
    }

    @Test("a log as a kill leaves it is whole: cut off anywhere, or with an end that was never written")
    func killedLogIsWhole() async throws {
        let (database, log, frames) = try makeKilled()
        for length in [0, 20, 32, 40, 32 + 4_120, 32 + 5 * 4_120 + 24, 32 + (frames - 1) * 4_120 + 3_000, log.count] {
            try restore(database, log.prefix(length))
            #expect(QueueLog(of: file)?.mended() == nil, "nothing in it needs a copy")
            let queue = try open()
            #expect(asides().isEmpty, "cut off at \(length)")
            queue.close()
        }
        // A head that a power cut has left half written, before the first frame has been.
        for length in [32, 32 + 4_119] {
            try restore(database, Data(count: 24) + log[24..<length])
            let queue = try open()
            #expect(asides().isEmpty)
            queue.close()
        }
        // The file is longer than what was written.
        try restore(database, log + Data(count: 2 * 4_120))
        let longer = try open()
        #expect(asides().isEmpty && longer.books.depth == 40)
        longer.close()
        // A last frame whose page is still that of an earlier round.
        var torn = log
        for index in torn.count - 4_096..<torn.count { torn[index] = 0x55 }
        try restore(database, torn)
        let queue = try open()
        #expect(asides().isEmpty && queue.books.depth >= 39)
        queue.close()
    }

    @Test(
        "behind a mended log stand frames of the round before, or places that were never written: nothing is lost (I1, I11)",
        arguments: [false, true], [false, true])
    func mendedRoundIsWhole(isHeadChanged: Bool, isNeverWritten: Bool) async throws {
        var (database, log, frames) = try makeKilled(isRestarted: true)
        let round = try #require((0..<frames).first { log[32 + $0 * 4_120 + 8..<32 + $0 * 4_120 + 16] != log[16..<24] }, "control")
        if isNeverWritten { log.replaceSubrange(32 + round * 4_120..<log.count, with: Data(count: (frames - round) * 4_120)) }
        // The size of a page, or a page.
        log[isHeadChanged ? 10 : 32 + 4_120 + 300] ^= 0x10
        try restore(database, log)
        let queue = try open()
        #expect(asides().count == 1)
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == 40 && queue.latestDamage?.lost == 0)
        queue.close()
    }

    @Test("a last frame of which nothing is left is told: it need not be of an older round (I1, I11)")
    func lostLastFrameIsTold() async throws {
        var (database, log, frames) = try makeKilled()
        for index in 32 + (frames - 1) * 4_120..<log.count { log[index] ^= 0x55 }
        try restore(database, log)
        let queue = try open()
        #expect(asides().count == 1)
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == 39 && queue.latestDamage?.lost == nil)
        queue.close()
    }

    @Test(
        "after a clean end no page is checked: damage is met at the first use, and nothing is lost by that (I11)",
        arguments: zip([false, true, true], [false, false, true]))
    func cleanOpeningChecksNoPage(wasKilled: Bool, isLink: Bool) async throws {
        var bytes = try make(60)
        // Opening reads the first row, but not the last.
        let leaf = try #require((1..<bytes.count / 4_096).last { bytes[$0 * 4_096] == 0x0D && bytes[$0 * 4_096 + 4] > 4 })
        for index in leaf * 4_096 + 1..<leaf * 4_096 + 200 { bytes[index] = 0xFF }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        // The log is beside the file, wherever that is.
        let target = isLink ? directory.path + "/elsewhere.sqlite" : file
        if isLink {
            try FileManager.default.moveItem(atPath: file, toPath: target)
            try FileManager.default.createSymbolicLink(atPath: file, withDestinationPath: target)
        }
        if wasKilled { try Data().write(to: URL(fileURLWithPath: target + "-wal")) }
        let queue = try open()
        #expect(asides().count == (wasKilled ? 1 : 0))
        #expect(try await drain(queue).count > 30)
        #expect(asides().count == 1 && queue.books.isBalanced)
        queue.close()
    }
}
