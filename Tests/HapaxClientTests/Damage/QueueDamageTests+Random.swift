import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Damage at random: bits, mostly in the headers of pages, and whole pages.
extension QueueDamageTests {
    /// `HAPAX_DAMAGES=5000` tries that many, others each time; without it a few that are always the same.
    static let damages = ProcessInfo.processInfo.environment["HAPAX_DAMAGES"].flatMap { Int($0) }

    @Test(
        "random damage: the queue opens, stores and drains; each event arrives as it was tracked, or is a dead letter, or is told as lost (I1, I3, I11, I12)"
    )
    func randomDamageIsSurvived() async throws {
        var random = SeededRandom(seed: Self.damages == nil ? 1 : .random(in: 0...999_999))
        print("seed of randomDamageIsSurvived: \(random.seed)")
        let whole = try make(60)
        for round in 0..<(Self.damages ?? 120) {
            var bytes = whole
            let page = Int.random(in: 0..<whole.count / 4_096, using: &random) * 4_096
            switch Int.random(in: 0..<10, using: &random) {
            case 0: for index in page..<page + 4_096 { bytes[index] = UInt8.random(in: 0...255, using: &random) }
            case 1...6:
                bytes[page + Int.random(in: 0..<40, using: &random) + (page == 0 ? 100 : 0)] ^= 1 << UInt8.random(in: 0...7, using: &random)
            default: bytes[page + Int.random(in: 0..<4_096, using: &random)] ^= 1 << UInt8.random(in: 0...7, using: &random)
            }
            let complaints = try await lifeOf(bytes)
            #expect(complaints == [], "round \(round), page \(page / 4_096 + 1)")
        }
    }

    /// Opens a queue whose file is `bytes`, stores one event more and delivers everything.
    ///
    /// - Returns: What was wrong with that.
    private func lifeOf(_ bytes: [UInt8]) async throws -> [String] {
        try? FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        let queue = try open(UUID().uuidString)
        defer { queue.close() }
        var more = Self.event(1_000)
        more.sequence = queue.books.lastSequence + 1
        try queue.append([more][...])
        let delivered = try await drain(queue)

        var complaints: [String] = []
        if delivered[Data(more.id.bytes)] != more.bytes { complaints.append("what was stored later did not arrive") }
        let strange = delivered.filter { $0.key != Data(more.id.bytes) && Self.originals[$0.key] != $0.value }
        if !strange.isEmpty { complaints.append("\(strange.count) events are not what was tracked") }
        let letters = try queue.deadLetters(after: 0, limit: 1_000)
        let buried = letters.count { $0.reason == "damaged" }
        let missing = 60 - (delivered.count - 1) - buried
        let books = queue.books
        // A file that cannot say how many it held has lost an unknown number, which is told as well.
        let isUnknown = queue.latestDamage.map { $0.lost == nil } ?? false
        if missing > books.drops.byReason["damaged"] ?? 0, !isUnknown {
            complaints.append("\(missing) missing, told \(books.drops.byReason)")
        }
        if letters.count - buried != 1, books.drops.byReason["damaged_dead_letter"] != 1, !isUnknown {
            complaints.append("\(letters.count - buried) letters, told \(books.drops.byReason)")
        }
        if !books.isBalanced || books.depth != 0 || books.bytes != 0 || Int(books.letters) != letters.count {
            complaints.append("\(books)")
        }
        if asides().count > 1 { complaints.append("\(asides().count) files set aside") }
        return complaints
    }

    @Test(
        "random damage of a log: nothing arrives that was not tracked, and what does not arrive is told (I1, I3, I11)",
        arguments: [false, true])
    func randomDamageOfALogIsTold(isRestarted: Bool) async throws {
        var random = SeededRandom(seed: Self.damages == nil ? 1 : .random(in: 0...999_999))
        print("seed of randomDamageOfALogIsTold: \(random.seed)")
        let (database, log, frames) = try makeKilled(isRestarted: isRestarted)
        let lastCommit = 32 + lastCommit(log) * 4_120
        #expect(lastCommit > 32 && isRestarted == (lastCommit < log.count / 2))
        for round in 0..<(Self.damages ?? 20) {
            var changed = log
            let length = 512 << Int.random(in: 0...5, using: &random)
            let block = Int.random(in: 0...log.count / length, using: &random) * length
            let places = block..<min(block + length, log.count)
            let kind = Int.random(in: 0..<6, using: &random)
            switch kind {
            case 0, 1:
                for _ in 0..<(kind == 0 ? 1 : 3) {
                    changed[Int.random(in: 0..<log.count, using: &random)] ^= 1 << UInt8.random(in: 0...7, using: &random)
                }
            case 2: for place in places { changed[place] = UInt8.random(in: 0...255, using: &random) }
            case 3: for place in places { changed[place] = 0 }
            case 4:
                // Written where it does not belong.
                let (source, target) = (Int.random(in: 0..<frames, using: &random), Int.random(in: 0..<frames, using: &random))
                changed.replaceSubrange(
                    32 + target * 4_120..<32 + (target + 1) * 4_120, with: log[32 + source * 4_120..<32 + (source + 1) * 4_120])
            default:
                // Not written, or read from elsewhere.
                let other = Int.random(in: 0..<log.count / length, using: &random) * length
                changed.replaceSubrange(places, with: log[other..<other + places.count])
            }
            guard let first = log.indices.first(where: { log[$0] != changed[$0] }) else { continue }
            try restore(database, changed)
            let queue = try open(UUID().uuidString)
            let delivered = try await drain(queue)
            let missing = (1...40).filter { delivered[Data(Self.event($0).id.bytes)] == nil }
            #expect(delivered.allSatisfy { Self.originals[$0.key] == $0.value }, "kind \(kind), round \(round)")
            // What is wrong in the last commit alone looks like one that was cut off.
            let isTold = queue.latestDamage.map { $0.lost == nil || $0.lost == missing.count } ?? (first >= lastCommit && missing.count < 2)
            #expect(missing.isEmpty || isTold, "kind \(kind), round \(round), byte \(first): \(missing)")
            #expect(queue.books.isBalanced)
            queue.close()
        }
    }

    @Test("a page that counts more rows than it holds gives rows nobody asked for: the salvage ends (I15)")
    func strayRowsEndNothing() async throws {
        let whole = try make(60)
        let leaves = (1..<whole.count / 4_096).filter { whole[$0 * 4_096] == 0x0D && whole[$0 * 4_096 + 4] > 4 }
        for leaf in leaves {
            for bit in [5, 7] {
                var bytes = whole
                bytes[leaf * 4_096 + 4] ^= 1 << UInt8(bit)
                #expect(try await lifeOf(bytes) == [], "page \(leaf + 1), bit \(bit)")
            }
        }
    }

    @Test("a row that stands where another should sends no search back: the salvage ends (I15)")
    func strayRowsSendNoSearchBack() throws {
        var bytes = try make(60)
        let leaves = (1..<bytes.count / 4_096).filter { bytes[$0 * 4_096] == 0x0D && bytes[$0 * 4_096 + 4] > 4 }
        let (page, next) = (leaves[1] * 4_096, leaves[2] * 4_096)
        // The last place of a page shows its first row; behind it nothing can be read.
        let last = page + 8 + 2 * (Int(bytes[page + 4]) - 1)
        (bytes[last], bytes[last + 1]) = (bytes[page + 8], bytes[page + 9])
        for index in next..<next + 64 { bytes[index] = 0xEE }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        var source = try #require(try QueueSalvage(path: file, .everything))
        defer { source.close() }
        var count = 0
        try source.rows(of: "queue") { row in
            count += 1
            if count > 1_000 { throw CancellationError() }
            return (try? WaitingRow(row)) != nil
        }
        #expect(count > 30)
    }

    @Test("a letter that changed in a name of the schema: the file is set aside, and all of it is found (I11)")
    func changedSchemaIsDamage() async throws {
        let whole = try make(60)
        for name in ["check_sum INTEGER", "payload BLOB NOT NULL,\n    time", "last_sequence", "event_id BLOB NOT NULL"] {
            let text = Array(name.split(separator: "\n")[0].utf8)
            let place = try #require((0..<4_096 - text.count).first { Array(whole[$0..<$0 + text.count]) == text })
            var bytes = whole
            bytes[place + 1] ^= 0x01
            #expect(try await lifeOf(bytes) == [], "\(name)")
            try FileManager.default.removeItem(atPath: path)
            try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
            try Data(bytes).write(to: URL(fileURLWithPath: file))
            let queue = try open()
            #expect(try await drain(queue).count == 60 && queue.books.isBalanced, "\(name)")
            queue.close()
        }
    }
}
