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
    func likeItsSum(_ log: Data, _ frame: Int) -> (place: Int, bit: UInt8)? {
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
    func lastCommitted(_ log: Data) -> Int {
        (0..<(log.count - 32) / 4_120).last { log[32 + $0 * 4_120 + 4..<32 + $0 * 4_120 + 8].contains { $0 != 0 } } ?? 0
    }

    /// What nobody can tell what it was: neither a page of it nor anything behind it may be taken for what was stored.
    func noise(_ log: Data, in frames: ClosedRange<Int>) -> Data {
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
        // The header can be made anew, and one bit more be found, unless others look like it: then nothing is missing.
        let isOneBit = length >= 32 && log[32..<length].reduce(0) { $0 + $1.nonzeroBitCount } == 1
        log.replaceSubrange(0..<length, with: Data(count: length))
        try restore(database, log)
        let queue = try open()
        #expect(asides().count == 1)
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.isSalvaged && (isOneBit && damage.lost == 0 ? damage.salvaged == 40 : damage.lost == nil && damage.salvaged < 40))
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
}
