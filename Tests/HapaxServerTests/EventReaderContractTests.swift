import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// What every store's reader answers; the same suite runs over PostgreSQL and SQLite (R63).
@Suite("The contract of every reader", .serialized, .endsWhenItHangs)
struct EventReaderContractTests {
    /// A store with a random past: two projects, ties of `received_at`, some names and users.
    private struct Past {
        let fixture: StoreUnderTest
        let store: any EventStore
        let clock = Locked(Sample.now)
        var random: SeededRandom

        init(_ kind: StoreUnderTest.Kind, random: SeededRandom) async throws {
            self.random = random
            fixture = try await StoreUnderTest(kind)
            store = try await fixture.open(currentTime: { [clock] in clock.withLock { $0 } })
        }

        mutating func commit(_ groups: Int, from first: UInt64) async throws {
            var next = first
            for _ in 0..<groups {
                let records = (0..<Int.random(in: 1...40, using: &random)).map { _ in
                    next += 1
                    // Ids in no order of time, as they come from many machines.
                    let id = Sample.id(next &* 0x9E37_79B9_7F4A_7C15 >> 8)
                    let install = EventID.derived(name: "install", key: "\(next % 3)")
                    return EventRecord(
                        EventScanner.scan(
                            Sample.event(
                                id, name: ["a", "b", "c"][Int(next % 3)], distinctID: "u\(next % 5)",
                                time: Sample.now - Int64(next % 9) * 86_400_000, sequence: Int64(next),
                                properties: [
                                    "n": Int64(next % 7), "big": String(repeating: "x", count: Int(next % 200)),
                                ])[...]),
                        id: id, projectID: next % 4 == 0 ? 2 : 1, envelope: .init(installID: install))
                }
                _ = try await store.commit(Sample.group(records), writer: 0)
                if Bool.random(using: &random) { clock.withLock { $0 += Int64.random(in: 1...90_000, using: &random) } }
            }
        }

        /// The ids of a project as the database itself sorts them.
        func ids(_ project: Int, where condition: String = "true") async throws -> [EventID] {
            let id = fixture.kind == .postgres ? "event_id" : StoreUnderTest.uuid("event_id")
            return try await fixture.rows(
                "SELECT \(id) FROM events WHERE project_id = \(project) AND \(condition) ORDER BY received_at DESC, event_id DESC"
            ).compactMap { EventID(uuidString: $0[0]) }
        }
    }

    private static let always = 0..<Int64.max
    /// From five days before to two days before, this instant included; in Unix microseconds.
    private static let days = (Sample.now - 5 * 86_400_000) * 1_000..<(Sample.now - 2 * 86_400_000) * 1_000 + 1

    private static func isOfDays(_ event: EventRow) -> Bool { days.contains(event.time * 1_000) }

    private static var later: QuestionTurn { QuestionTurn(within: .seconds(300)) }

    /// The whole list, in pages of random length.
    private static func list(
        _ reader: any EventReader, _ query: EventQuery, _ random: inout SeededRandom, where keeps: ((EventRow) -> Bool)? = nil,
        between pages: () async throws -> Void = {}
    ) async throws -> [EventRow] {
        var (query, events) = (query, [EventRow]())
        repeat {
            query.limit = Int.random(in: 1...150, using: &random)
            let page = try await reader.events(query, in: later, where: keeps)
            #expect(page.events.count <= query.limit)
            events += page.events
            query.after = page.next
            try await pages()
        } while query.after != nil
        return events
    }

    @Test(
        "Pages of any length are the database's own order, newest first; each filter keeps what it names, and no other project is there (I9)",
        arguments: StoreUnderTest.Kind.allCases)
    func pagesAreTheWholeList(kind: StoreUnderTest.Kind) async throws {
        var past = try await Past(kind, random: .printed())
        try await past.commit(60, from: 0)
        let reader = past.store.reader
        var random = past.random
        for project: Int32 in [1, 2, 3] {
            let whole = EventQuery(projectID: project, received: Self.always, limit: 1)
            let all = try await Self.list(reader, whole, &random)
            #expect(all.map(\.id) == (try await past.ids(Int(project))))
            var query = whole
            query.name = "b"
            query.distinctID = "u2"
            let filtered = try await Self.list(reader, query, &random)
            #expect(filtered.map(\.id) == (try await past.ids(Int(project), where: "event = 'b' AND distinct_id = 'u2'")))
            query = whole
            query.installID = .derived(name: "install", key: "1")
            let install = try await Self.list(reader, query, &random)
            #expect(install.map(\.id) == all.filter { $0.installID == query.installID }.map(\.id))
            query = whole
            query.happened = Self.days
            let happened = try await Self.list(reader, query, &random)
            #expect(happened.map(\.id) == all.filter(Self.isOfDays).map(\.id))
            let filter = try #require(PropertyFilter("n:3.0"))
            let found = try await Self.list(reader, whole, &random, where: filter.keeps)
            #expect(found.map(\.id) == all.filter { $0.sequence.map { $0 % 7 == 3 } ?? false }.map(\.id))
            guard let middle = all.dropFirst(all.count / 2).first?.receivedAt.unixMicroseconds else { continue }
            for span in [0..<middle, middle..<middle + 1, middle..<Int64.max, middle + 1..<Int64.max] {
                query = EventQuery(projectID: project, received: span, limit: 1)
                let part = try await Self.list(reader, query, &random)
                #expect(part.map(\.id) == all.filter { span.contains($0.receivedAt.unixMicroseconds) }.map(\.id))
            }
        }
        await past.store.close()
    }

    @Test(
        "An export is the database's own order, oldest first, of what was received in its span, and goes on behind any event",
        arguments: StoreUnderTest.Kind.allCases)
    func exportIsTheWholeHistory(kind: StoreUnderTest.Kind) async throws {
        var past = try await Past(kind, random: .printed())
        try await past.commit(60, from: 0)
        // More at one instant than a step holds.
        let crowd = (0..<UInt64(ServerLimits.exportEvents + 200)).map { Sample.record(Sample.id(900_000 + $0)) }
        _ = try await past.store.commit(Sample.group(crowd), writer: 0)
        try await past.commit(30, from: 500_000)
        var random = past.random
        let reader = past.store.reader
        func export(_ query: EventQuery) async throws -> [EventRow] {
            var (rest, width, events) = (Optional(query), Int.random(in: 0...14, using: &random), [EventRow]())
            while let query = rest {
                let step = try await reader.stepForward(query, width: &width, in: Self.later)
                events += step.events
                rest = step.rest
            }
            return events
        }
        let end = Timestamp(clampingUnixMilliseconds: EventLimits.maximumTime).unixMicroseconds
        let whole = EventQuery(projectID: 1, received: 0..<end, limit: .max)
        let all = try await export(whole)
        #expect(all.map(\.id) == (try await past.ids(1)).reversed() && all.count > ServerLimits.exportEvents)
        var query = whole
        (query.name, query.distinctID) = ("b", "u2")
        let filtered = try await export(query).map(\.id)
        #expect(filtered == (try await past.ids(1, where: "event = 'b' AND distinct_id = 'u2'")).reversed())
        query = whole
        query.happened = Self.days
        let happened = try await export(query)
        #expect(happened.map(\.id) == all.filter(Self.isOfDays).map(\.id) && !happened.isEmpty && happened.count < all.count)
        for _ in 0..<5 {
            let place = Int.random(in: 0..<all.count, using: &random)
            query = whole
            query.after = all[place].position
            let behind = try await export(query)
            #expect(behind.map(\.id) == all.dropFirst(place + 1).map(\.id))
            let bound = all[place].receivedAt.unixMicroseconds / 1_000 * 1_000
            query = EventQuery(projectID: 1, received: 0..<bound, limit: .max)
            let before = try await export(query)
            #expect(before.map(\.id) == all.filter { $0.receivedAt.unixMicroseconds < bound }.map(\.id))
        }
        // A span that could not be looked through in time is tried again, and a shorter one on PostgreSQL.
        var width = 5
        if kind == .postgres {
            let step = try await reader.stepForward(whole, width: &width, in: QuestionTurn(within: .zero))
            #expect(step.events.isEmpty && step.rest?.received == whole.received && width == 4)
        }
        let nothing = try await export(EventQuery(projectID: 3, received: 0..<end, limit: .max))
        #expect(nothing.isEmpty)
        await past.store.close()
    }

    @Test(
        "A user's events among many on SQLite: those that are folded and those that are not, rare ones and one that comes often, filtered, page by page",
        arguments: [9, 1_000_000])
    func usersEventsAreFoundAmongMany(rowsOfAnInstant: Int) async throws {
        let fixture = try await StoreUnderTest(.sqlite)
        let store = try await fixture.open(currentTime: { Sample.now })
        // Instants lie across segments and pages, or all is received at one.
        let user = "CASE WHEN i % 16 = 1 THEN 'often' ELSE 'u' || (i * 7919 % 50021) END"
        try await fixture.execute(
            """
            WITH RECURSIVE e (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM e WHERE i < \(SQLiteUserRuns.segmentRows * 2 + 9_000))
            INSERT INTO events (project_id, event_id, event, distinct_id, time, received_at, fingerprint, properties)
            SELECT 1 + (i % 5 = 0), CAST(printf('%016d', i * 7919 % 1000003) AS BLOB), 'e' || (i % 3), \(user), 0, i / \(rowsOfAnInstant), 0, '{}' FROM e
            """)
        try await store.refresh()
        #expect(try await fixture.rows("SELECT count(*), count(DISTINCT segment) FROM user_runs") == [["128", "2"]])
        var random = SeededRandom.printed()
        for user in ["u0", "u7919", "u15838", "nobody"] + (rowsOfAnInstant == 9 ? ["often"] : []) {
            for name in [nil, "e1"] {
                let condition = "project_id = 1 AND distinct_id = '\(user)' AND \(name.map { "event = '\($0)'" } ?? "true")"
                let ids = try await fixture.rows(
                    "SELECT \(StoreUnderTest.uuid("event_id")) FROM events WHERE \(condition) ORDER BY received_at DESC, event_id DESC")
                var query = EventQuery(projectID: 1, received: Self.always, limit: 1)
                (query.distinctID, query.name) = (user, name)
                let found = try await Self.list(store.reader, query, &random)
                #expect(found.map(\.id) == ids.compactMap { EventID(uuidString: $0[0]) }, "\(user)")
            }
        }
        await store.close()
    }

    @Test("While others write, no row that was there is repeated or skipped", arguments: StoreUnderTest.Kind.allCases)
    func listsHoldStillWhileOthersWrite(kind: StoreUnderTest.Kind) async throws {
        var past = try await Past(kind, random: .printed())
        try await past.commit(30, from: 0)
        let before = try await past.ids(1)
        var (random, writing, next) = (past.random, past, UInt64(100_000))
        let seen = try await Self.list(
            past.store.reader, EventQuery(projectID: 1, received: Self.always, limit: 1), &random,
            between: {
                next += 1_000
                try await writing.commit(1, from: next)
            }
        ).map(\.id)
        #expect(Set(seen).count == seen.count)
        #expect(seen.filter(Set(before).contains) == before)
        await past.store.close()
    }

    @Test(
        "One event is read back as it was sent, with its receipt; fingerprints are those of the writers",
        arguments: StoreUnderTest.Kind.allCases)
    func eventIsReadBack(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open(currentTime: { Sample.now })
        let properties: Properties = [
            "é\u{202E}": "<b>\u{1}", "__proto__": ["x": 0.1], "big": Int64.max, "list": [1, nil, true] as PropertyValue,
        ]
        let install = Sample.id(900)
        for (number, id) in [Sample.id(1), .derived(name: "n", key: "k"), EventID(high: 0x4000, low: 0b10 << 62 | 5)].compactMap(\.self)
            .enumerated()
        {
            let event = Sample.event(id, name: "naïve", distinctID: "u\u{301}", sequence: 7, properties: properties)
            let record = EventRecord(EventScanner.scan(event[...]), id: id, projectID: 1, envelope: .init(installID: install))
            _ = try await store.commit(Sample.group([record]), writer: 0)
            let read = try #require(try await store.reader.event(record.key))
            #expect(
                read.id == id && read.name == Array("naïve".utf8) && read.distinctID == Array("u\u{301}".utf8) && read.time == Sample.now)
            #expect(read.installID == install && read.sequence == 7)
            #expect(try PropertyValue(json: String(decoding: read.properties, as: UTF8.self)) == properties.propertyValue)
            #expect(try await store.reader.event(EventKey(id: id, projectID: 2)) == nil)
            let keys = [record.key, EventKey(id: id, projectID: 2), EventKey(id: Sample.id(800 + UInt64(number)), projectID: 1)]
            #expect(try await store.reader.fingerprints(keys, in: Self.later) == [record.key: record.fingerprint])
        }
        await store.close()
    }

    @Test("Counts go by the bytes of a name, within a span and a project", arguments: StoreUnderTest.Kind.allCases)
    func countsGoByBytes(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open(currentTime: { Sample.now })
        for (number, name) in ["\u{E9}", "e\u{301}", "e\u{301}", "x"].enumerated() {
            _ = try await store.commit(Sample.group([Sample.record(Sample.id(UInt64(number)), name: name)]), writer: 0)
        }
        _ = try await store.commit(Sample.group([Sample.record(Sample.id(9), project: 2, name: "x")]), writer: 0)
        func counts(_ received: Range<Int64> = Self.always, limit: Int = 10) async throws -> NameCounts {
            try await store.reader.countsByName(projectID: 1, received: received, limit: limit, in: Self.later)
        }
        #expect(try await counts().names == [[0xC3, 0xA9]: 1, [0x65, 0xCC, 0x81]: 2, [0x78]: 1])
        #expect(try await counts(limit: 2).names == [[0x65, 0xCC, 0x81]: 2, [0x78]: 1])
        #expect(try await [counts().other, counts(limit: 2).other, counts(limit: 1).other] == [0, 1, 2])
        #expect(try await counts(0..<1) == NameCounts())
        await #expect(throws: StoreError.tooHeavy) {
            try await store.reader.countsByName(projectID: 1, received: Self.always, limit: 10, in: QuestionTurn(within: .seconds(-1)))
        }
        await store.close()
    }

    @Test("A reader is there again after its connections were cut")
    func cutReadersReturn() async throws {
        let fixture = try await StoreUnderTest(.postgres)
        let store = try await fixture.open(currentTime: { Sample.now })
        _ = try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0)
        let key = EventKey(id: Sample.id(1), projectID: 1)
        #expect(try await store.reader.event(key) != nil)
        _ = try await fixture.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        #expect(try await store.reader.event(key) != nil)
        await store.close()
    }
}

@Suite("A page of a list", .endsWhenItHangs)
struct EventPageTests {
    /// Has nothing in its small steps, and never answers the large ones in time.
    private struct SlowReader: EventReader {
        func event(_ key: EventKey) async throws(StoreError) -> EventRow? { nil }
        func place(_ key: EventKey) async throws(StoreError) -> EventPosition? { nil }
        func fingerprints(_ keys: [EventKey], in turn: QuestionTurn) async throws(StoreError) -> [EventKey: Int64] { [:] }
        func compare(_ records: [EventRecord], in turn: QuestionTurn) async throws(StoreError) -> [Bool?] { [] }
        func step(_ query: EventQuery, width: Int, in turn: QuestionTurn) async throws(StoreError) -> EventStep {
            if width == 3 { throw .tooHeavy }
            let at = (query.after?.receivedAt.unixMilliseconds ?? 1_000) - 100
            return EventStep(
                events: [], next: EventPosition(receivedAt: Timestamp(clampingUnixMilliseconds: at), id: .least), isCut: false)
        }
        func stepForward(
            _ query: EventQuery, width: inout Int, in turn: QuestionTurn
        ) async throws(StoreError) -> ExportStep { ExportStep(events: [], rest: nil) }
        func overview() async throws(StoreError) -> StoreOverview { throw .tooHeavy }
        func countsByName(
            projectID: Int32, received: Range<Int64>, limit: Int, in turn: QuestionTurn
        ) async throws(StoreError) -> NameCounts { NameCounts() }
        func close() async {}
    }

    @Test("A step that takes too long ends the page where the next one begins, with small steps again")
    func slowStepEndsThePage() async throws {
        var query = EventQuery(projectID: 1, received: 0..<Int64.max, limit: 10)
        let page = try await SlowReader().events(query, in: QuestionTurn(within: .seconds(60)))
        #expect(page.next?.receivedAt.unixMilliseconds == 700)
        query.after = page.next
        #expect(try await SlowReader().events(query, in: QuestionTurn(within: .seconds(60))).next?.receivedAt.unixMilliseconds == 400)
        #expect(try await SlowReader().events(query, in: QuestionTurn(within: .seconds(-60))).next?.receivedAt.unixMilliseconds == 600)
    }
}

@Suite("Asking for a property", .endsWhenItHangs)
struct PropertyFilterTests {
    @Test(
        "A value is met as the text it is, and as the JSON it spells",
        arguments: [
            ("plan:pro", true), ("plan:Pro", false), ("n:1", true), ("n:1.0", true), ("n:10e-1", true), ("n:2", false), ("text:1", true),
            ("yes:true", true), ("none:null", true), ("deep.x:a:b", true), ("list:[1,2]", true), ("list:[2,1]", false),
            ("missing:null", false),
            ("empty:", true), (#"plan:"pro""#, true), ("é:1", true), ("e\u{301}:1", false), (#""a:b":1"#, true), (#""a:b":2"#, false),
            (#""a\u003ab":1"#, true), (#""plan":pro"#, true),
        ])
    func valuesAreMet(text: String, isMet: Bool) throws {
        let properties =
            #"{"plan":"pro","n":1,"text":"1","yes":true,"none":null,"deep":{"x":"a:b"},"list":[1, 2.0],"empty":"","\#u{E9}":1,"a:b":1}"#
        let row = EventRow(
            id: Sample.id(1), name: [], distinctID: [], time: 0, receivedAt: Timestamp(clampingUnixMilliseconds: 0),
            properties: Array(properties.utf8))
        #expect(try #require(PropertyFilter(text)).keeps(row) == isMet)
    }

    @Test(
        "Without a name and a colon there is nothing to ask for", arguments: ["", "plan", ":pro", "\"a:b", "\"a\"", "\"\":1", #""a\x":1"#])
    func incompleteFiltersAreNone(text: String) {
        #expect(PropertyFilter(text) == nil)
    }
}

@Suite("JSON as short as it was", .endsWhenItHangs)
struct CompactJSONTests {
    @Test(
        "White space goes, and a number gets an exponent only beyond 64 characters: 1000 stays 1000; texts stay as they are",
        arguments: [
            (#"{"a": [1, 2.50, -0.0, 0, 10, 1000],"# + "\n" + #" "b c": " \" \\"}"#, #"{"a":[1,2.50,-0.0,0,10,1000],"b c":" \" \\"}"#),
            ("100000", "100000"), ("-0.000012", "-0.000012"), ("1e300", "1e300"), ("120.000", "120.000"),
            (String(repeating: "9", count: 64), String(repeating: "9", count: 64)),
            ("1" + String(repeating: "0", count: 63), "1" + String(repeating: "0", count: 63)),
            ("-" + String(repeating: "0", count: 2) + "1", "-001"), ("1" + String(repeating: "0", count: 300), "1e300"),
            ("0." + String(repeating: "0", count: 299) + "17", "17e-301"), (#""1000000""#, #""1000000""#), ("true", "true"), ("", ""),
        ])
    func jsonIsShort(json: String, short: String) {
        #expect(String(decoding: CompactJSON.rewritten(Array(json.utf8)), as: UTF8.self) == short)
    }

    @Test("an event whose numbers have grown beyond its limit gets exponents")
    func grownEventsAreShort() {
        let grown = "[" + Array(repeating: "1" + String(repeating: "0", count: 60), count: 600).joined(separator: ",") + "]"
        let short = "[" + Array(repeating: "1e60", count: 600).joined(separator: ",") + "]"
        #expect(String(decoding: CompactJSON.rewritten(Array(grown.utf8)), as: UTF8.self) == short)
    }
}
