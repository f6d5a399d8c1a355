import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Without its first page SQLite finds nothing in a file; the rows on the others are whole.
extension QueueDamageTests {
    enum Destruction: CaseIterable {
        case header, magic, schema, page, pageWithLog

        func destroy(_ bytes: inout [UInt8]) {
            let range =
                switch self {
                case .header: 16..<40
                case .magic: 0..<16
                case .schema: 100..<3_000
                case .page, .pageWithLog: 0..<4_096
                }
            for index in range { bytes[index] ^= 0xFF }
        }
    }

    private func opened(after destruction: Destruction) throws -> EventQueue {
        let first = try open("first")
        try first.append((1...60).map { Self.event($0) }[...])
        var bad = Self.event(61)
        bad.problem = EventProblem(.nameTooLong, detail: "too long")
        try first.append([bad][...])
        try first.saveIdentity { Identity(anonymousID: "a-1", loginID: "anna") }
        if destruction == .pageWithLog {
            try first.database.writeWithoutTransaction { _ = try $0.checkpoint(.truncate) }
            try first.append([Self.event(62)][...])
        }
        let log = FileManager.default.contents(atPath: file + "-wal") ?? Data()
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
        first.close()
        if destruction != .pageWithLog { bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: file))) }
        destruction.destroy(&bytes)
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        if destruction == .pageWithLog { try log.write(to: URL(fileURLWithPath: file + "-wal")) }
        return try open()
    }

    @Test(
        "the first page is lost, whole or in part: every event, dead letter and user is found all the same",
        arguments: Destruction.allCases)
    func firstPageIsMadeAnew(destruction: Destruction) async throws {
        let queue = try opened(after: destruction)
        #expect(try queue.identity() == EventQueue.SavedIdentity(anonymousID: "a-1", loginID: "anna"), "at once")
        #expect(asides().count == 1)
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        let count = destruction == .pageWithLog ? 61 : 60
        #expect(damage.isSalvaged && damage.salvaged == count && damage.lost == 0 && damage.salvagedDeadLetters == 1)
        let batch = try queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
        #expect(batch.events.map(\.id) == ((1...60).map { $0 } + [62]).prefix(count).map { Self.event($0).id })
        #expect(batch.events.map(\.bytes) == ((1...60).map { $0 } + [62]).prefix(count).map { Self.event($0).bytes })
        #expect(batch.envelope.installID == Self.install)
        #expect(try FileManager.default.contentsOfDirectory(atPath: path).filter { $0.contains("copy") } == [])
        queue.close()
    }

    @Test("a copy that a crash left is removed when the queue opens")
    func copiesDoNotStay() throws {
        try opened(after: .page).close()
        for suffix in ["", "-wal", "-shm"] {
            try Data("left".utf8).write(to: URL(fileURLWithPath: file + ".damaged-1.copy" + suffix))
        }
        try open("third").close()
        #expect(try FileManager.default.contentsOfDirectory(atPath: path).filter { $0.contains("copy") } == [])
    }

    @Test("who only asks whom a large file concerns copies its first pages, and all of its length")
    func stateTakesAFewPages() throws {
        let (source, target) = (directory.path("large"), directory.path("copy"))
        let bytes = Data(repeating: 0xA5, count: 100 * QueueRoom.pageBytes)
        try bytes.write(to: URL(fileURLWithPath: source))
        try SalvageCopy.make(of: source, at: target, .state, log: nil)
        let copied = 64 * QueueRoom.pageBytes
        #expect(try Data(contentsOf: URL(fileURLWithPath: target)) == bytes.prefix(copied) + Data(count: bytes.count - copied))
    }
}
