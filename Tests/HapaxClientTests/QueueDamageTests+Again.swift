import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// More than one damaged file.
extension QueueDamageTests {
    @Test("what was salvaged from one file does not come back when the next cannot be read at all")
    func salvagedFilesStayDoneBehindNoise() async throws {
        try makeDamaged()
        let queue = try open("second")
        await queue.salvage()
        _ = try queue.purge()
        queue.close()
        try Data("noise".utf8).write(to: URL(fileURLWithPath: file))
        let again = try open("third")
        #expect(asides().count == 2)
        #expect(try await drain(again).isEmpty)
        again.close()
    }

    @Test("a file whose salvage had no chance to be marked as done is marked at the next opening")
    func markIsMadeUpFor() async throws {
        try makeDamaged()
        let queue = try open("second")
        await queue.salvage()
        queue.close()
        let mark = try #require(
            try FileManager.default.contentsOfDirectory(atPath: path).first { $0.hasSuffix(".salvaged") })
        try FileManager.default.removeItem(atPath: path + "/" + mark)
        try open("third").close()
        #expect(queue.directory.isSalvaged("queue.sqlite.damaged-1"))
    }

    @Test("dead letters that are lost with a file that was damaged before it opened are counted and told (I11, I12)")
    func lostLettersAreTold() async throws {
        var bytes = try make(60)
        let text = Array(#"too long"#.utf8)
        let place = try #require((0..<bytes.count - text.count).last { Array(bytes[$0..<$0 + text.count]) == text })
        let page = place / 4_096
        for index in page * 4_096..<page * 4_096 + 64 { bytes[index] = 0xEE }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        try Data().write(to: URL(fileURLWithPath: file + "-wal"))
        let queue = try open()
        await queue.salvage()
        let damage = try #require(queue.latestDamage)
        #expect(damage.salvaged == 60 && damage.lost == 0 && damage.salvagedDeadLetters == 0 && damage.lostDeadLetters == 1)
        #expect(damage.properties["$lost_dead_letters"] == .integer(1))
        #expect(queue.books.dropped == ["damaged_dead_letter": 1] && queue.books.isBalanced)
        queue.close()
    }

    /// A file from which nobody can tell whose it is: the only page of its books is noise.
    private func makeFileOfNobody() throws {
        var bytes = try make(60)
        let books = try #require(
            (1..<bytes.count / 4_096).first { page in
                let start = page * 4_096
                return bytes[start] == 0x0D && bytes[start + 4] == 1
                    && bytes[start..<start + 4_096].indices.contains { Array(bytes[$0..<min($0 + 16, bytes.count)]) == Self.install.bytes }
            })
        for index in books * 4_096..<books * 4_096 + 200 { bytes[index] = 0xEE }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
    }

    @Test("dead letters of two files of nobody knows which install have the same numbers and are both kept (I1)")
    func lettersOfNobodyDoNotCollide() async throws {
        for round in 1...2 {
            try? FileManager.default.removeItem(atPath: file)
            try makeFileOfNobody()
            let queue = try open("round \(round)")
            await queue.salvage()
            #expect(queue.latestDamage?.salvagedDeadLetters == 1)
            #expect(try queue.deadLetterCount() == 1 && queue.books.isBalanced)
            _ = try await drain(queue)
            queue.close()
            try FileManager.default.copyItem(atPath: file, toPath: directory.path + "/round-\(round).sqlite")
        }
        // The second queue took the first one's place, but nothing of it: both are adopted by a third.
        let main = try EventQueue(
            directory: QueueDirectory(path: directory.path + "/main"), durability: .process, newInstallID: .derived(name: "i", key: "main"))
        for round in 1...2 {
            let place = QueueDirectory(path: directory.path + "/round-\(round)")
            try FileManager.default.createDirectory(atPath: place.path, withIntermediateDirectories: true)
            try FileManager.default.copyItem(atPath: directory.path + "/round-\(round).sqlite", toPath: place.databasePath)
            let spool = try EventQueue(
                directory: place, durability: .process, newInstallID: .derived(name: "i", key: "unused"), isSpool: true)
            let letters = try spool.deadLetters(after: 0, limit: 9).map { $0.belonging(to: spool.installID) }
            #expect(letters.map(\.origin) == [.nobody])
            for _ in 1...2 { try main.adoptDeadLetters(letters) }
            spool.close()
        }
        #expect(try main.deadLetterCount() == 2, "each once, however often it is adopted")
        main.close()
    }
}
