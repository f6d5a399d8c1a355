import Foundation
import GRDB
import HapaxModel
import HapaxSQLite
import TestSupport
import Testing

@testable import HapaxClient

/// Damage in the log of a queue whose process was killed.
extension QueueDamageTests {
    /// Database and log as a kill leaves them, with some commits in the log, and how many frames it has.
    ///
    /// - Parameter isRestarted: Whether the log has been begun anew; frames of the round before lie behind then.
    func makeKilled(isRestarted: Bool = false) throws -> (database: Data, log: Data, frames: Int) {
        let queue = try open("first")
        for number in 1...40 {
            try queue.append([Self.event(Int64(number))][...])
            if isRestarted, number == 30 { try queue.database.writeWithoutTransaction { _ = try $0.checkpoint(.full) } }
        }
        let (database, log) = (
            try Data(contentsOf: URL(fileURLWithPath: file)), try Data(contentsOf: URL(fileURLWithPath: file + "-wal"))
        )
        queue.close()
        return (database, log, (log.count - 32) / 4_120)
    }

    func restore(_ database: Data, _ log: Data) throws {
        try? FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try database.write(to: URL(fileURLWithPath: file))
        try log.write(to: URL(fileURLWithPath: file + "-wal"))
    }

    /// The first frame behind the commit before the last.
    func lastCommit(_ log: Data) -> Int {
        let frames = (0..<(log.count - 32) / 4_120).map { log[32 + $0 * 4_120..<32 + ($0 + 1) * 4_120] }
        let commits = frames.indices.filter { index in
            frames[index].dropFirst(4).prefix(4).contains { $0 != 0 } && frames[index].dropFirst(8).prefix(8) == log[16..<24]
        }
        return commits[commits.count - 2] + 1
    }

    @Test("a changed bit anywhere in the log: it is told what it was, and nothing is lost (I1, I7, I11, D17)")
    func changedBitOfALogIsUndone() async throws {
        let (database, log, frames) = try makeKilled()
        #expect(frames > 40)
        // In the header; then in the first frames, in the middle, in the first and the last of the last commit.
        var places: [Int] = [0, 3, 5, 10, 13, 17, 25]
        for frame in [0, 1, 7, frames / 2, lastCommit(log), frames - 1] {
            for offset in [2, 6, 9, 18, 300] { places.append(32 + frame * 4_120 + offset) }
        }
        // The last one says in which order of bytes the sums are made.
        for (place, bit) in places.map({ ($0, 0x10) }) + [(3, 0x01)] {
            var changed = log
            changed[place] ^= UInt8(bit)
            try restore(database, changed)
            let queue = try open()
            #expect(asides().count == 1, "byte \(place)")
            #expect(queue.installID != Self.install, "its sequences must not be given again")
            #expect(FileManager.default.fileExists(atPath: file + ".damaged-1-wal"), "byte \(place)")
            await queue.salvage()
            let damage = queue.latestDamage
            #expect(damage?.isSalvaged == true && damage?.lost == 0 && damage?.salvaged == 40, "byte \(place)")
            let batch = try queue.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0)
            #expect(batch.events.map(\.id) == (1...40).map { Self.event($0).id }, "byte \(place)")
            #expect(asides().count == 1 && !FileManager.default.fileExists(atPath: file + ".damaged-1.copy"))
            queue.close()
        }
    }

    @Test("any bit of the last frame: what it was is known, or that something is lost is told (I1, I11)")
    func bitOfTheLastFrameIsTold() async throws {
        let (database, log, frames) = try makeKilled()
        let last = 32 + (frames - 1) * 4_120
        for place in [last + 3, last + 17, last + 19, last + 23, last + 24 + 403, last + 24 + 2_003, last + 4_119] {
            for bit in [0x01, 0x20, 0x80] as [UInt8] {
                var changed = log
                changed[place] ^= bit
                try restore(database, changed)
                let queue = try open()
                #expect(asides().count == 1, "byte \(place - last), bit \(bit)")
                await queue.salvage()
                let damage = try #require(queue.latestDamage)
                #expect(damage.salvaged == 40 && damage.lost == 0 || damage.salvaged < 40 && damage.lost == nil, "\(damage)")
                queue.close()
            }
        }
    }

    @Test("a log that was mended and whose last commit is lost all the same: nobody knows how many events were (I11)")
    func lossBehindAMendedBitIsTold() async throws {
        var (database, log, _) = try makeKilled()
        let last = 32 + lastCommit(log) * 4_120
        log[32 + 50 * 4_120 + 300] ^= 0x10
        for place in last + 24..<last + 124 { log[place] ^= 0x55 }
        try restore(database, log)
        let queue = try open()
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == 39 && queue.latestDamage?.lost == nil)
        queue.close()
    }

    @Test("a changed bit that looks like another one in the sum is told, and no guess is taken for what was stored (I3, I11)")
    func ambiguousBitIsTold() async throws {
        let (database, log, frames) = try makeKilled()
        for frame in [1, 7, frames / 2] {
            var changed = log
            // Among the highest bits of a number of the sum there are several that fit.
            changed[32 + frame * 4_120 + 24 + 4_095] ^= 0x80
            try restore(database, changed)
            let queue = try open()
            await queue.salvage()
            let damage = try #require(queue.latestDamage)
            #expect(damage.isSalvaged && damage.lost == nil, "frame \(frame): \(damage)")
            let batch = try queue.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0)
            #expect(batch.events.map(\.id) == (1..<1 + Int64(damage.salvaged)).map { Self.event($0).id })
            queue.close()
        }
    }

    @Test("whether a page has changed or its sum is told by the frame behind it; at the log's end nothing is guessed (I3, I11)")
    func nextFrameTells() async throws {
        let (database, log, frames) = try makeKilled()
        for frame in [1, 7, frames / 2] {
            var (page, sum) = (log, log)
            let (place, bit) = try #require(likeItsSum(log, frame))
            page[place] ^= bit
            for offset in 16..<24 { sum[32 + frame * 4_120 + offset] ^= 0xA5 }
            for changed in [page, sum] {
                try restore(database, changed)
                let queue = try open()
                await queue.salvage()
                #expect(queue.latestDamage?.salvaged == 40 && queue.latestDamage?.lost == 0, "frame \(frame)")
                queue.close()
            }
        }
        var changed = log
        let (place, bit) = try #require(likeItsSum(log, frames - 1))
        changed[place] ^= bit
        try restore(database, changed)
        let queue = try open()
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == 39 && queue.latestDamage?.lost == nil)
        queue.close()
    }

    /// A bit of a page's last number that changes the sum in one bit, too: whichever has changed, it looks the same.
    private func likeItsSum(_ log: Data, _ frame: Int) -> (place: Int, bit: UInt8)? {
        let start = 32 + frame * 4_120
        for index in 0..<16 {
            let place = start + 24 + 4_092 + (log[3] & 1 == 1 ? 3 - index / 8 : index / 8)
            let bit = UInt8(1) << UInt8(index % 8)
            if log[place] & bit == log[start + 23 - index / 8] & bit { return (place, bit) }
        }
        return nil
    }

    @Test("a changed bit in a transaction that was cut off hides nothing; another before it does (I1, I11)")
    func changedBitOfAnUncommittedTransaction() async throws {
        let first = try open("first")
        for group in [1...1, 2...2, 3...3, 4...40] as [ClosedRange<Int64>] { try first.append(group.map { Self.event($0) }[...]) }
        let database = try Data(contentsOf: URL(fileURLWithPath: file))
        var log = try Data(contentsOf: URL(fileURLWithPath: file + "-wal")).dropLast(4_120)
        first.close()
        log[32 + lastCommitted(log) * 4_120 + 4_120 + 300] ^= 0x10
        try restore(database, log)
        let whole = try open()
        #expect(asides().isEmpty && whole.books.depth == 3)
        whole.close()
        log[32 + 4_120 + 300] ^= 0x10
        try restore(database, log)
        let queue = try open()
        #expect(asides().count == 1)
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == 3 && queue.latestDamage?.lost == 0)
        queue.close()
    }

    /// The last frame that ends a commit.
    private func lastCommitted(_ log: Data) -> Int {
        (0..<(log.count - 32) / 4_120).last { log[32 + $0 * 4_120 + 4..<32 + $0 * 4_120 + 8].contains { $0 != 0 } } ?? 0
    }

    /// What nobody can tell what it was: neither a page of it nor anything behind it may be taken for what was stored.
    private func noise(_ log: Data, in frames: ClosedRange<Int>) -> Data {
        var changed = log
        for frame in frames {
            for index in 32 + frame * 4_120 + 24..<32 + (frame + 1) * 4_120 { changed[index] ^= UInt8(truncatingIfNeeded: index * 31 + 7) }
        }
        return changed
    }

    @Test("more than a bit in a log: what stands before it is found again, and told that nobody knows how much is lost (I11)")
    func noiseInALogIsTold() async throws {
        let (database, log, frames) = try makeKilled()
        for last in [frames / 2, frames / 2 + 2] {
            try restore(database, noise(log, in: frames / 2...last))
            // Who only looks must not call the rest all there is.
            #expect(throws: StorageFailure.self) { try QueueReader(directory: QueueDirectory(path: path)) }
            let queue = try open()
            await queue.salvage()
            let damage = try #require(queue.latestDamage)
            #expect(damage.isSalvaged && damage.lost == nil && (1..<40).contains(damage.salvaged), "\(damage)")
            let batch = try queue.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0)
            #expect(batch.events.map(\.id) == (1...Int64(damage.salvaged)).map { Self.event($0).id }, "in their order, none left out")
            queue.close()
        }
    }

    @Test("noise in the midst of the last commit: it is told, although no other commit stands behind it (I1, I11)")
    func lastCommitIsNotHidden() async throws {
        let first = try open("first")
        for group in [1...3, 4...40] as [ClosedRange<Int64>] { try first.append(group.map { Self.event($0) }[...]) }
        let (database, log) = (
            try Data(contentsOf: URL(fileURLWithPath: file)), try Data(contentsOf: URL(fileURLWithPath: file + "-wal"))
        )
        first.close()
        let last = lastCommit(log)
        try #require((log.count - 32) / 4_120 - last > 3)
        // In its second frame, before its end, and in its first and once more.
        for frames in [[last + 1], [(log.count - 32) / 4_120 - 3], [last, last + 3]] {
            try restore(database, frames.reduce(log) { noise($0, in: $1...$1) })
            let queue = try open()
            #expect(asides().count == 1, "frames \(frames)")
            await queue.salvage()
            let damage = try #require(queue.latestDamage)
            #expect(damage.isSalvaged && damage.lost == nil && damage.salvaged == 3, "\(damage)")
            queue.close()
        }
    }

    /// A queue with five events, then so many commits that fail, of so many events each, then `later` that succeed; database and log as a
    /// kill leaves them.
    private func makeLeftovers(_ failing: [Int], later: Int) throws -> (database: Data, log: Data, events: [EventID]) {
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

    @Test(
        "what is written over in the commit before the last, its end or its middle: the last one behind it does not vanish untold (I11)",
        arguments: [0x55, 0] as [UInt8], [100, 4_200])
    func lastCommitsAreNotHidden(byte: UInt8, length: Int) async throws {
        let (database, log, _) = try makeKilled()
        let behind = 32 + lastCommit(log) * 4_120
        // A block that ends in the last commit's first frame; of the frame before, sum and page; both.
        for end in [behind + 80, behind - 4_120 + 16 + length, behind - 8_000 + length] {
            var changed = log
            for place in end - length..<end { changed[place] = byte }
            if changed == log { continue }
            try restore(database, changed)
            let queue = try open()
            #expect(asides().count == 1, "until \(end - behind)")
            await queue.salvage()
            let damage = try #require(queue.latestDamage)
            #expect(damage.isSalvaged && (damage.salvaged == 40 || damage.lost == nil), "\(damage)")
            queue.close()
        }
    }

    @Test("a log with a head of zeros, as one has that was never begun: all of it is found (I1, I11, D17)")
    func headlessLogIsRead() async throws {
        var (database, log, _) = try makeKilled()
        log.replaceSubrange(0..<32, with: Data(count: 32))
        try restore(database, log)
        let queue = try open()
        #expect(asides().count == 1)
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == 40 && queue.latestDamage?.lost == 0)
        queue.close()
    }

    @Test(
        "a log that begins with zeros, as where a block was lost: what cannot be read is told (I1, I11, D17)",
        arguments: [40, 48, 512, 4_096, 65_536, .max])
    func logWithoutABeginningIsTold(zeros: Int) async throws {
        var (database, log, _) = try makeKilled()
        let length = min(zeros, log.count)
        log.replaceSubrange(0..<length, with: Data(count: length))
        try restore(database, log)
        let queue = try open()
        #expect(asides().count == 1)
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && damage.lost == nil && damage.salvaged < 40)
        queue.close()
    }

    @Test("a log of one frame whose head has changed is read (I11, D17)")
    func onlyFrameIsRead() throws {
        let first = try open("first")
        try first.append((1...9).map { Self.event($0) }[...])
        try first.database.writeWithoutTransaction { _ = try $0.checkpoint(.truncate) }
        try first.saveIdentity { Identity(anonymousID: "a-1", loginID: "anna") }
        let database = try Data(contentsOf: URL(fileURLWithPath: file))
        var log = try Data(contentsOf: URL(fileURLWithPath: file + "-wal"))
        first.close()
        #expect(log.count == 32 + 4_120)
        log[5] ^= 0x10
        try restore(database, log)
        let queue = try open()
        #expect(asides().count == 1)
        #expect(try queue.identity() == EventQueue.SavedIdentity(anonymousID: "a-1", loginID: "anna"))
        queue.close()
    }

    @Test("a log of one commit that cannot be read, and a head that has changed: that something is lost is told (I11)", arguments: [1, 9])
    func onlyCommitIsTold(frames: Int) async throws {
        let first = try open("first")
        try first.append((1...9).map { Self.event($0) }[...])
        try await first.database.writeWithoutTransaction { _ = try $0.checkpoint(.truncate) }
        if frames == 1 {
            try first.saveIdentity { Identity(anonymousID: "a-1", loginID: "anna") }
        } else {
            try first.append((10...100).map { Self.event($0) }[...])
        }
        let database = try Data(contentsOf: URL(fileURLWithPath: file))
        var log = noise(try Data(contentsOf: URL(fileURLWithPath: file + "-wal")), in: 0...0)
        first.close()
        #expect((log.count - 32) / 4_120 >= frames, "control")
        log[5] ^= 0x10
        try restore(database, log)
        let queue = try open()
        #expect(asides().count == 1)
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == 9 && queue.latestDamage?.lost == nil, "nobody knows how many")
        queue.close()
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
