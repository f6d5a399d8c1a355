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

    /// The file of the last frame's commit: the first frame behind the commit before it.
    private func lastCommit(_ log: Data) -> Int {
        let frames = (log.count - 32) / 4_120
        let commits = (0..<frames).filter { log[32 + $0 * 4_120 + 4..<32 + $0 * 4_120 + 8].contains { $0 != 0 } }
        return commits[commits.count - 2] + 1
    }

    @Test("a changed bit in the log, in its head or before its last commit: all that can be read of it is found again (I1, I7, I11, D17)")
    func changedLogIsReadAllTheSame() async throws {
        let (database, log, frames) = try makeKilled()
        #expect(frames > 40)
        var places: [Int] = [0, 3, 5, 10, 17, 25]
        for frame in [0, 1, 7, frames / 2] {
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
            let damage = queue.latestDamage
            #expect(damage?.isSalvaged == true && damage?.lost == 0 && damage?.salvaged == 40, "byte \(place)")
            let batch = try queue.nextBatch(limit: 100, maximumBytes: 1_000_000, skipping: 0)
            #expect(batch.events.map(\.id) == (1...40).map { Self.event($0).id }, "byte \(place)")
            #expect(asides().count == 1 && !FileManager.default.fileExists(atPath: file + ".damaged-1.copy"))
            queue.close()
        }
    }

    @Test("a log whose pages changed is read without them, and what they held is told, if that is known (I11, D17)")
    func changedPagesOfALogAreTold() async throws {
        let (database, log, frames) = try makeKilled()
        // In the middle of the log all later commits wrote the page again; in the last commit nobody did.
        for (frame, isKnown) in [(frames / 2, true), (lastCommit(log), false)] {
            var changed = log
            for index in 32 + frame * 4_120 + 24..<32 + (frame + 1) * 4_120 { changed[index] = 0xA5 }
            try restore(database, changed)
            let queue = try open()
            await queue.salvage()
            let damage = try #require(queue.latestDamage)
            #expect(damage.isSalvaged && damage.lost == (isKnown ? 0 : nil), "frame \(frame)")
            #expect(!isKnown || damage.salvaged == 40)
            queue.close()
        }
    }

    enum Concealment: CaseIterable {
        /// A head of zeros, as a log has that was never begun.
        case noHead
        /// A frame that names no page, which SQLite takes for the log's end.
        case noPage
        /// The latest first page, without which SQLite finds nothing.
        case noFirstPage

        func conceal(_ log: inout Data, before end: Int) throws {
            let frames = (0..<end).map { 32 + $0 * 4_120 }
            switch self {
            case .noHead: log.replaceSubrange(0..<32, with: Data(count: 32))
            case .noPage: log.replaceSubrange(frames[end / 2]..<frames[end / 2] + 4, with: Data(count: 4))
            case .noFirstPage:
                let frame = try #require(frames.last { log[$0..<$0 + 4] == Data([0, 0, 0, 1]) })
                log.replaceSubrange(frame + 24..<frame + 4_120, with: Data(repeating: 0xA5, count: 4_096))
            }
        }
    }

    @Test(
        "a log that seems to be empty or to end early, or has lost a first page: all of it is found (I1, I11, D17)",
        arguments: Concealment.allCases)
    func concealedLogIsRead(concealment: Concealment) async throws {
        var (database, log, _) = try makeKilled()
        try concealment.conceal(&log, before: lastCommit(log))
        try restore(database, log)
        let queue = try open()
        #expect(asides().count == 1)
        await queue.salvage()
        #expect(queue.latestDamage?.salvaged == 40 && queue.latestDamage?.lost == 0)
        queue.close()
    }

    @Test("a log of one frame whose head has changed is read: its sum cannot be checked, and it is a commit (I11, D17)")
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
