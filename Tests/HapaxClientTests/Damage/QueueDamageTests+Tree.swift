import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Pages that lead to the pages of rows.
extension QueueDamageTests {
    /// So many that the root leads to pages that lead to others.
    private static let rows: Int64 = 4_500
    private static let letters: Int64 = 200

    private static func row(_ number: Int64) -> PreparedEvent { .sample(number, fill: 300) }

    private struct Tree {
        var root: Int
        var inner: [Int] = []
    }

    /// A closed queue and its inner pages, by table.
    private func makeTrees() throws -> [String: Tree] {
        let queue = try open("first")
        try queue.append((1...Self.rows).map { Self.row($0) }[...])
        for start in stride(from: 1, through: Self.letters, by: 50) {
            let letters = (start..<start + 50).map { number in
                var event = Self.row(Self.rows + number)
                event.problem = EventProblem(.nameTooLong, detail: "too long")
                return event
            }
            try queue.append(letters[...])
        }
        var roots: [String: Int] = [:]
        try queue.database.read { db in
            for row in try Row.fetchAll(db, sql: "SELECT name, rootpage FROM sqlite_schema WHERE name IN ('queue', 'dead_letters')") {
                roots[row[0]] = row[1]
            }
        }
        queue.close()
        let pages = try QueuePages(path: file)
        return try roots.mapValues { root in
            var tree = Tree(root: root)
            let page = try #require(try pages.page(UInt32(root)))
            func number(_ place: Int) -> Int { page[place..<place + 4].reduce(0) { $0 << 8 | Int($1) } }
            let cells = (0..<Int(page[3]) << 8 | Int(page[4])).map { Int(page[12 + 2 * $0]) << 8 | Int(page[13 + 2 * $0]) }
            tree.inner = try (cells.map(number) + [number(8)]).filter { try pages.page(UInt32($0))?.first == 5 }
            return tree
        }
    }

    private func change(_ pages: [Int], of path: String? = nil, _ change: (inout ArraySlice<UInt8>) -> Void) throws {
        var bytes = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path ?? file)))
        for page in pages { change(&bytes[(page - 1) * 4_096..<page * 4_096]) }
        try Data(bytes).write(to: URL(fileURLWithPath: path ?? file))
    }

    private func noise(_ page: inout ArraySlice<UInt8>) {
        for index in page.indices { page[index] = UInt8(truncatingIfNeeded: index &* 167 &+ 13) }
    }

    /// What a client finds that starts on the file, as after a kill: then pages are looked at when it opens.
    private func salvaged() async throws -> (queue: EventQueue, damage: QueueDamage?) {
        if !FileManager.default.fileExists(atPath: file + "-wal") { try Data().write(to: URL(fileURLWithPath: file + "-wal")) }
        let queue = try open()
        // Met by who delivers, if not when it opened.
        _ = try? queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0)
        _ = try? queue.deadLetters(after: 0, limit: 999)
        await queue.salvage()
        return (queue, queue.latestDamage)
    }

    private func expectEverything(and more: [PreparedEvent] = [], _ context: String = "") async throws {
        let (queue, damage) = try await salvaged()
        defer { queue.close() }
        if let damage { #expect(damage.lost == 0 && damage.lostDeadLetters == 0, "\(context): \(damage)") }
        #expect(queue.books.isBalanced && queue.books.depth == Self.rows + Int64(more.count), "\(context)")
        #expect(try queue.deadLetterCount() == Int(Self.letters), "\(context)")
        let ids = try await queue.database.read { try Data.fetchSet($0, sql: "SELECT event_id FROM queue") }
        #expect(ids == Set(((1...Self.rows).map { Self.row($0) } + more).map { Data($0.id.bytes) }), "\(context)")
    }

    enum Place: CaseIterable { case root, below, both, letters }

    @Test("no inner page is needed to find all rows: the file says what was below it (I1, I11)", arguments: Place.allCases)
    func rowsBelowADamagedPageAreFound(place: Place) async throws {
        let trees = try makeTrees()
        let (queue, letters) = (try #require(trees["queue"]), try #require(trees["dead_letters"]))
        #expect(queue.inner.count > 1, "a tree with a page between its root and its rows")
        let pages =
            switch place {
            case .root: [queue.root]
            case .below: [queue.inner[0]]
            case .both: [queue.root] + queue.inner
            case .letters: [letters.root]
            }
        try change(pages, noise)
        try await expectEverything()
        #expect(asides().count == 1)
    }

    @Test("nor where the latest of them stand in the log (I1, I11)")
    func rowsInALogAreFound() async throws {
        let root = try #require(try makeTrees()["queue"]).root
        let more = (Self.rows + Self.letters + 1...Self.rows + Self.letters + 9).map { Self.row($0) }
        let queue = try open("first")
        try queue.append(more[...])
        // As a kill leaves it.
        let names = ["", "-wal"]
        let files = try names.map { try Data(contentsOf: URL(fileURLWithPath: file + $0)) }
        queue.close()
        for (name, bytes) in zip(names, files) { try bytes.write(to: URL(fileURLWithPath: file + name)) }
        let logged = try #require(QueueLog(of: file)?.pages()).pages
        #expect(logged[UInt32(root)] == nil && !logged.isEmpty, "a page in the log would stand for it")
        try change([root], noise)
        try await expectEverything(and: more)
    }

    @Test("a changed bit anywhere in an inner page costs no row, and what it makes SQLite believe is sent to nobody (I1, I3)")
    func bitsOfAnInnerPage() async throws {
        let trees = try makeTrees()
        let whole = try Data(contentsOf: URL(fileURLWithPath: file))
        let queue = try #require(trees["queue"])
        var random = SeededRandom(seed: 1)
        for round in 0..<15 {
            try? FileManager.default.removeItem(atPath: path)
            try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
            try whole.write(to: URL(fileURLWithPath: file))
            let page = round % 3 == 0 ? queue.root : try #require(queue.inner.randomElement(using: &random))
            // The header, the places of the cells, and the cells at the end.
            let offset = round % 2 == 0 ? Int.random(in: 0..<24, using: &random) : Int.random(in: 3_000..<4_096, using: &random)
            let bit = UInt8(1) << UInt8.random(in: 0..<8, using: &random)
            try change([page]) { $0[$0.startIndex + offset] ^= bit }
            try await expectEverything("page \(page), byte \(offset), bit \(bit)")
        }
    }

    @Test("where the file's own map is damaged, too, what nobody can find is told as lost (I11)")
    func mapIsDamagedToo() async throws {
        let trees = try makeTrees()
        let root = try #require(trees["queue"]).root
        try change([2, root], noise)
        let (queue, damage) = try await salvaged()
        let lost = try #require(damage?.lost)
        #expect(lost > 0 && lost + (damage?.salvaged ?? 0) == Int(Self.rows) && queue.books.isBalanced)
        queue.close()
    }

    @Test("a damaged map alone hides nothing")
    func mapAloneIsDamaged() async throws {
        _ = try makeTrees()
        try change([2], noise)
        try await expectEverything()
    }

    @Test("a page that a whole one leads to is not taken from it, whatever the map says")
    func mapTakesNoPageAway() throws {
        let tree = try #require(try makeTrees()["queue"])
        let pages = try QueuePages(path: file)
        let map = try #require(try pages.page(2))
        func entry(below page: Int) -> [UInt8] { [5] + (0..<4).map { UInt8(truncatingIfNeeded: page >> (24 - 8 * $0)) } }
        // Of the page behind the map, and so on.
        let index = try #require((0..<819).first { Array(map[5 * $0..<5 * $0 + 5]) == entry(below: tree.inner[0]) })
        let repair = try TreeRepair(roots: [UInt32(tree.root)], count: pages.count) { number in
            guard number == 2 else { return try pages.page(number) }
            return map[..<(5 * index)] + entry(below: tree.inner[1]) + map[(5 * index + 5)...]
        }
        #expect(repair.pages.isEmpty)
    }

    @Test("nothing but a page of a tree is made anew, whatever map and pages say", arguments: [0, 1, 2, 822, 0xF000_0000] as [UInt32])
    func impossiblePagesAreNotMade(parent: UInt32) throws {
        let tree = try #require(try makeTrees()["queue"])
        let pages = try QueuePages(path: file)
        let bytes = (0..<4).map { UInt8(truncatingIfNeeded: parent >> (24 - 8 * $0)) }
        let repair = try TreeRepair(roots: [UInt32(tree.root), parent], count: pages.count) { number in
            guard var page = try pages.page(number) else { return nil }
            // The root's last child, and what the map says of the pages below the root.
            if number == UInt32(tree.root) { page.replaceSubrange(8..<12, with: bytes) }
            for child in tree.inner where number == UInt32((child - 2) / 820 * 820 + 2) {
                let entry = 5 * ((child - 2) % 820 - 1)
                page.replaceSubrange(entry..<entry + 5, with: [5] + bytes)
            }
            return page
        }
        #expect(repair.pages.keys.allSatisfy { (3...pages.count).contains($0) && $0 != 822 })
        let copy = directory.path("copy")
        try FileManager.default.copyItem(atPath: file, toPath: copy)
        try pages.write(to: copy, replacing: repair.pages)
        #expect(try Data(contentsOf: URL(fileURLWithPath: copy)).count == Data(contentsOf: URL(fileURLWithPath: file)).count)
    }

    @Test("a damaged page of rows costs the others nothing where the page above them all is made anew (I1, I11)")
    func damagedLeafCostsItsOwnRows() async throws {
        let tree = try #require(try makeTrees()["queue"])
        let pages = try QueuePages(path: file)
        let inner = try #require(try pages.page(UInt32(tree.inner[0])))
        let cell = Int(inner[12]) << 8 | Int(inner[13])
        let leaf = inner[cell..<cell + 4].reduce(0) { $0 << 8 | Int($1) }
        try change([leaf, tree.root], noise)
        let (queue, damage) = try await salvaged()
        let lost = try #require(damage?.lost)
        #expect(lost > 0 && lost < 20 && queue.books.isBalanced && queue.books.depth == Self.rows - Int64(lost))
        queue.close()
    }

    @Test("in a whole file nothing is made anew, whatever has been stored and delivered", arguments: 0..<4)
    func wholeTreesStay(seed: Int) throws {
        var random = SeededRandom(seed: UInt64(seed))
        let queue = try open("first")
        defer { queue.close() }
        var next: Int64 = 1
        for _ in 0..<12 {
            let count = Int64.random(in: 1...900, using: &random)
            let fill = Int.random(in: 0...9_000, using: &random)
            try queue.append((next..<next + count).map { .sample($0, fill: $0 % 7 == 0 ? fill : fill % 300) }[...])
            next += count
            for _ in 0..<Int.random(in: 0...4, using: &random) {
                let batch = try queue.nextBatch(limit: 200, maximumBytes: .max, skipping: 0)
                let fate: Settlement.Fate = Bool.random(using: &random) ? .stored : .deadLetter(reason: "r", detail: "d")
                try queue.settle(batch.events.map { Settlement(event: $0, fate: fate) }, time: 0)
            }
            let roots = try queue.database.read {
                try UInt32.fetchAll($0, sql: "SELECT rootpage FROM sqlite_schema WHERE name IN ('queue', 'dead_letters')")
            }
            let pages = try QueuePages(path: file)
            #expect(roots.count == 2)
            #expect(try TreeRepair(roots: roots, count: pages.count, read: pages.page).pages.isEmpty)
        }
    }
}
