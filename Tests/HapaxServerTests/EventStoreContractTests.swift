import Foundation
import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

/// What every store must keep; the same suite runs over PostgreSQL and SQLite.
@Suite("The contract of every store", .serialized, .endsWhenItHangs)
struct EventStoreContractTests {
    @Test(
        "A duplicate across batches is found with the fingerprint of the first; the first stays (I2, I3)",
        arguments: StoreUnderTest.Kind.allCases)
    func duplicateUUIDIsStoredOnce(kind: StoreUnderTest.Kind) async throws {
        let store = try await StoreUnderTest(kind).open()
        let first = Sample.record(Sample.id(1))
        let second = Sample.record(Sample.id(1), properties: ["amount": 99])
        #expect(try await store.commit(Sample.group([first]), writer: 0) == [:])
        #expect(try await store.commit(Sample.group([second]), writer: 0) == [first.key: first.fingerprint])
        #expect(try await store.commit(Sample.group([], lookups: [first.key]), writer: 0) == [first.key: first.fingerprint])
        await store.close()
    }

    @Test(
        "What is stored is compared by value, with the table that the queue and the groups are tried by (I3)",
        arguments: StoreUnderTest.Kind.allCases)
    func storedValuesAreCompared(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        func record(_ number: UInt64, _ properties: String) -> EventRecord {
            let id = Sample.id(number)
            return EventRecord(EventScanner.scan(SameContent.event("\(id)", properties)[...]), id: id, projectID: 1, envelope: .init())
        }
        let ways = SameContent.ways.enumerated().map { number, texts in texts.map { record(UInt64(number), $0) } }
        let others = SameContent.others.map { record(100, $0) }
        _ = try await store.commit(Sample.group(ways.compactMap(\.first) + [others[0]]), writer: 0)
        func expect(_ records: [EventRecord], _ same: [Bool?]) async throws {
            #expect(try await store.compare(records, writer: 0) == same)
            #expect(try await store.reader.compare(records, in: QuestionTurn(within: .seconds(60))) == same)
        }
        try await expect(ways.flatMap(\.self), ways.flatMap(\.self).map { _ in true })
        try await expect(others, others.indices.map { $0 == 0 })
        // Another name or user, what nobody stored, and what the database cannot hold, among others.
        let same = record(100, "{ }")
        var (named, used, unknown, unfit) = (same, same, record(101, "{}"), same)
        named.name = Array("f".utf8)[...]
        used.distinctID = Array("v".utf8)[...]
        unknown.key.projectID = 2
        unfit.properties = Array(#"{"a":"\u0000"}"#.utf8)[...]
        try await expect([same, named, unfit, same, used, unknown], [true, false, false, true, false, nil])
        await store.close()
        withExtendedLifetime(fixture) {}
    }

    @Test("A mixed batch stores exactly the new ones", arguments: StoreUnderTest.Kind.allCases)
    func mixedBatchStoresExactlyTheNew(kind: StoreUnderTest.Kind) async throws {
        let store = try await StoreUnderTest(kind).open()
        let all = (1...500).map { Sample.record(Sample.id(UInt64($0))) }
        let odd = all.enumerated().filter { $0.offset % 2 == 0 }.map(\.element)
        #expect(try await store.commit(Sample.group(odd), writer: 0).isEmpty)
        let found = try await store.commit(Sample.group(all), writer: 0)
        #expect(Set(found.keys) == Set(odd.map(\.key)))
        let again = try await store.commit(Sample.group(all), writer: 0)
        #expect(again == Dictionary(uniqueKeysWithValues: all.map { ($0.key, $0.fingerprint) }))
        await store.close()
    }

    @Test("The same id in two projects is two rows (I9)", arguments: StoreUnderTest.Kind.allCases)
    func sameIDInTwoProjectsIsTwoRows(kind: StoreUnderTest.Kind) async throws {
        let store = try await StoreUnderTest(kind).open()
        let one = Sample.record(Sample.id(1), project: 1)
        let two = Sample.record(Sample.id(1), project: 2)
        #expect(try await store.commit(Sample.group([one]), writer: 0).isEmpty)
        #expect(try await store.commit(Sample.group([two]), writer: 0).isEmpty)
        #expect(try await store.commit(Sample.group([one, two]), writer: 0).count == 2)
        await store.close()
    }

    @Test("A key that nobody stored is not found; looking for it stores nothing", arguments: StoreUnderTest.Kind.allCases)
    func lookupStoresNothing(kind: StoreUnderTest.Kind) async throws {
        let store = try await StoreUnderTest(kind).open()
        let record = Sample.record(Sample.id(3))
        #expect(try await store.commit(Sample.group([], lookups: [record.key]), writer: 0).isEmpty)
        #expect(try await store.commit(Sample.group([record]), writer: 0).isEmpty)
        await store.close()
    }

    @Test(
        "Ids of every kind of bucket are stored once: dated, ahead of the clock, derived, version 4",
        arguments: StoreUnderTest.Kind.allCases)
    func everyBucketHasAPlace(kind: StoreUnderTest.Kind) async throws {
        let store = try await StoreUnderTest(kind).open()
        let texts = [
            "00000000-0001-7000-8000-000000000001",  // 1970
            "018cc251-f400-7000-8000-000000000001",  // 2024-01-01
            "03bb2cc3-d7ff-7000-8000-000000000001",  // 2099-12-31
            "ffffffff-ffff-7fff-bfff-ffffffffffff",  // the last there is
            "9b2fd0a3-6d19-4c4e-8f39-0c4f6a6e3b11", "9b2fd0a3-6d19-4c4e-8f39-0c4f6a6e3bff",
        ]
        let ids = try texts.map { try #require(EventID(uuidString: $0)) } + [.derived(name: "a", key: "b")]
        let records = ids.map { Sample.record($0) }
        #expect(try await store.commit(Sample.group(records), writer: 0).isEmpty)
        #expect(try await store.commit(Sample.group(records), writer: 0).count == records.count)
        await store.close()
    }

    @Test("What was committed is there after the store is opened again (I4)", arguments: StoreUnderTest.Kind.allCases)
    func committedSurvivesReopening(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let record = Sample.record(Sample.id(1))
        let first = try await fixture.open()
        _ = try await first.commit(Sample.group([record]), writer: 0)
        await first.close()
        let second = try await fixture.open()
        #expect(try await second.commit(Sample.group([record]), writer: 0) == [record.key: record.fingerprint])
        await second.close()
    }

    @Test("A project's number stays; another name gets another", arguments: StoreUnderTest.Kind.allCases)
    func projectNumbersStay(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let first = try await fixture.open()
        let shop = try await first.projectID(named: "shop")
        let app = try await first.projectID(named: "app")
        #expect(shop != app)
        await first.close()
        let second = try await fixture.open()
        #expect(try await second.projectID(named: "app") == app)
        #expect(try await second.projectID(named: "shop") == shop)
        await second.close()
    }

    @Test(
        "A row is what was sent, equal as JSON values, times to the millisecond, keys plain (I3)", arguments: StoreUnderTest.Kind.allCases)
    func rowIsWhatWasSent(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        let install = Sample.id(900)
        let event = Array(
            #"{"event_id":"019B76DA-A800-7000-8000-000000000001","event":"naïve \"x\"","time":253402300799999,"distinct_id":"\u00e9","sequence":9223372036854775807,"properties":{"a":1,"\u0061":2.50,"n":1e-320,"big":123456789012345678901234567890,"s":"\ud83e\uddfe\u0001","l":[{"k":1,"k":null}]}}"#
                .utf8)
        let request = try Sample.request([event], project: 7, envelope: .init(sentAt: 0, installID: install))
        let record = try #require(request.record(at: 0))
        #expect(try await store.commit(Sample.group([record]), writer: 0) == [:])
        let row = try #require(try await fixture.rows("SELECT \(fixture.allColumns) FROM events").first)
        #expect(
            Array(row.dropLast()) == [
                "7", "019b76da-a800-7000-8000-000000000001", #"naïve "x""#, "é", "253402300799999", "0", install.description,
                "9223372036854775807",
            ])
        let sent = #"{"a":2.50,"n":1e-320,"big":123456789012345678901234567890,"s":"🧾\u0001","l":[{"k":null}]}"#
        let stored = Array(row[8].utf8)[...]
        #expect(ValueHash.hash(json: stored) == ValueHash.hash(json: Array(sent.utf8)[...]) && PlainKeys.plain(stored) == stored)
        await store.close()
    }

    @Test(
        "Of what an install says the greatest numbers and the latest word are kept, for each project apart (I9, I10, I12)",
        arguments: StoreUnderTest.Kind.allCases)
    func latestWordIsKept(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        let install = Sample.id(900)
        func say(_ envelope: EventBatch.Envelope, project: Int32 = 1) async throws {
            let report = try #require(InstallReport(envelope, projectID: project))
            #expect(try await store.commit(Sample.group([], reports: [report]), writer: 0) == [:])
        }
        try await say(.init(installID: install, created: 4))
        try await say(.init(installID: install, created: 1), project: 2)
        try await say(
            .init(
                installID: install, reportVersion: 5, created: 9, acknowledged: 3, held: [4...4, 6...7],
                removed: [.init(5...5, reason: "'); DROP TABLE events; --")],
                refused: ["quota_full": 2]))
        // Late, repeated, or without a reportVersion: what only rises rises, the rest stays.
        try await say(.init(installID: install, reportVersion: 4, created: 12, acknowledged: 1, refused: ["quota_full": 1]))
        try await say(.init(installID: install, reportVersion: 5, created: 9))
        try await say(.init(installID: install, acknowledged: 8))
        let columns = "project_id, created, acknowledged, word, held, gone, refused"
        let rows = try await fixture.rows("SELECT \(columns) FROM installs ORDER BY project_id").map {
            $0.map { $0.replacing(" ", with: "") }
        }
        #expect(
            rows == [
                ["1", "12", "8", "5", "[[4,4],[6,7]]", #"[[5,5,"');DROPTABLEevents;--"]]"#, #"{"quota_full":2}"#],
                ["2", "1", "0", "0", "[]", "[]", "{}"],
            ])
        await store.close()
    }

    @Test(
        "With another unique index on the table nothing is called stored that is not there (I2, I4)",
        arguments: StoreUnderTest.Kind.allCases)
    func anotherUniqueIndexHidesNothing(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        try await fixture.execute("CREATE UNIQUE INDEX of_somebody ON \(kind == .postgres ? "events_2026_01" : "events") (distinct_id)")
        let (one, two) = (Sample.record(Sample.id(1)), Sample.record(Sample.id(2)))
        #expect(try await store.commit(Sample.group([one]), writer: 0) == [:])
        for group in [Sample.group([two]), Sample.group([one, two])] {
            let error = await #expect(throws: StoreError.self) { try await store.commit(group, writer: 0) }
            guard case .unavailable = error else { Issue.record("\(String(describing: error))"); return }
        }
        #expect(try await fixture.rows("SELECT count(*) FROM events") == [["1"]])
        await store.close()
    }

    @Test("Rows that a trigger swallows are not called stored (I4)", arguments: StoreUnderTest.Kind.allCases)
    func swallowedRowsAreNotStored(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        try await fixture.execute(
            kind == .postgres
                ? """
                CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
                CREATE TRIGGER swallow BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION swallow();
                """
                : "CREATE TRIGGER swallow BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END")
        let error = await #expect(throws: StoreError.self) {
            try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0)
        }
        guard case .unavailable = error else { Issue.record("\(String(describing: error))"); return }
        await store.close()
    }

    @Test(
        "A schema that a newer server migrated, or one from before the first release, is refused in words and left as it is",
        arguments: StoreUnderTest.Kind.allCases, ["999_from_the_future", "001_events"])
    func otherSchemasAreRefused(kind: StoreUnderTest.Kind, migration: String) async throws {
        let fixture = try await StoreUnderTest(kind)
        await (try fixture.open()).close()
        let ledger = kind == .postgres ? "hapax_migrations (name)" : "grdb_migrations (identifier)"
        try await fixture.execute("INSERT INTO \(ledger) VALUES ('\(migration)')")
        let error = await #expect(throws: StoreError.self) { try await fixture.open() }
        let word = migration == "001_events" ? "before the first release" : "newer than this server"
        guard case .unusable(let reason) = error else { Issue.record("\(String(describing: error))"); return }
        #expect(reason.contains(word))
    }

    /// Lets two sessions commit the same ids at once, round after round.
    ///
    /// - Returns: How often both stored and both found some, so that they did meet; and rows and distinct ids in the table.
    private static func race(_ uri: String, rounds: Int, sorted: Bool) async throws -> (meetings: Int, rows: [[String]]) {
        let one = try await StoreUnderTest.postgres(uri)
        let two = try await StoreUnderTest.postgres(uri)
        var meetings = 0
        for round in 0..<rounds {
            let records = (1...400).map { Sample.record(Sample.id(UInt64(round * 1_000 + $0))) }
            async let left = commitRetrying(one, StoreGroup(records: records), writer: 0)
            async let right = commitRetrying(two, StoreGroup(records: sorted ? records : records.reversed()), writer: 1)
            let (found1, found2) = try await (left, right)
            if found1.count + found2.count == records.count, Set(found1.keys).isDisjoint(with: found2.keys) { meetings += 1 }
        }
        await one.close()
        await two.close()
        return (meetings, try await PostgresCluster.shared.query("SELECT count(*), count(DISTINCT event_id) FROM events", database: uri))
    }

    @Test(
        "Two sessions with the same ids, in one order and in opposite orders: each id is new to exactly one of them (I2)",
        arguments: [true, false])
    func twoSessionsAtOnceStoreEachIDOnce(sorted: Bool) async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        let (agreements, rows) = try await Self.race(uri, rounds: 20, sorted: sorted)
        #expect(agreements == 20)
        #expect(rows == [["8000", "8000"]])
    }

    @Test("Control: without the unique key the same race stores ids twice")
    func withoutUniqueKeyTheSameCheckFails() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        await (try StoreUnderTest.postgres(uri)).close()
        _ = try await PostgresCluster.shared.query("ALTER TABLE events DROP CONSTRAINT events_pkey", database: uri)
        // The look-up still finds what was committed before it, so both must look before either commits: they do, sooner or later.
        for _ in 0..<10 {
            let (agreements, rows) = try await Self.race(uri, rounds: 20, sorted: true)
            if agreements < 20, rows[0][0] != rows[0][1] { return }
        }
        Issue.record("two sessions never met in 200 rounds")
    }

    private static func commitRetrying(
        _ store: PostgresEventStore, _ group: StoreGroup, writer: Int
    ) async throws -> [EventKey: Int64] {
        while true {
            let result: Result<[EventKey: Int64], StoreError>
            do throws(StoreError) {
                result = .success(try await store.commit(group, writer: writer))
            } catch {
                result = .failure(error)
            }
            if result != .failure(.collided) { return try result.get() }
        }
    }
}
