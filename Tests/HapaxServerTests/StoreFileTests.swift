import Foundation
import HapaxModel
import HapaxSQLite
import TestSupport
import Testing

@testable import HapaxServer

/// Stores as released versions wrote them. Every later version must open each of these files; none is ever written anew.
@Suite("Stores that earlier versions wrote (I2, I3)", .serialized, .endsWhenItHangs)
struct StoreFileTests {
    /// What is in each file.
    private static let records = [
        Sample.record(Sample.id(1), properties: ["amount": 12.5, "list": [1, nil, "é"] as PropertyValue]),
        Sample.record(Sample.id(1), project: 2),
        Sample.record(.derived(name: "order_paid", key: "A-17")),
        Sample.record(
            CalendarDay("2026-01-01").map { .derived(name: "order_paid", key: "A-17", day: $0) } ?? Sample.id(3),
            envelope: .init(sentAt: Sample.now, installID: Sample.id(900))),
    ]

    private static let report = InstallReport(
        .init(
            installID: Sample.id(900), reportVersion: 2, created: 4, acknowledged: 1, held: [2...2],
            removed: [.init(3...3, reason: "purged")]),
        projectID: 1)

    private static func fill(_ store: any EventStore) async throws {
        _ = try await store.projectID(named: "shop")
        _ = try await store.commit(Sample.group(records, reports: [try #require(report)]), writer: 0)
        await store.close()
    }

    private static func url(_ name: String) throws -> URL {
        try #require(Bundle.module.url(forResource: name, withExtension: nil, subdirectory: "Golden"))
    }

    /// Opens a copy of a file.
    private static func restored(_ kind: StoreUnderTest.Kind, _ version: String) async throws -> StoreUnderTest {
        let fixture = try await StoreUnderTest(kind)
        switch kind {
        case .sqlite: try FileManager.default.copyItem(at: url("\(version).sqlite"), to: URL(fileURLWithPath: fixture.place))
        case .postgres: try await fixture.execute(String(contentsOf: url("\(version).sql"), encoding: .utf8))
        }
        return fixture
    }

    @Test(
        "Each is opened: its events are found again with their content, its projects keep their numbers",
        arguments: StoreUnderTest.Kind.allCases, ["001_store", "002_reads"])
    func storeIsOpened(kind: StoreUnderTest.Kind, version: String) async throws {
        let fixture = try await Self.restored(kind, version)
        let store = try await fixture.open()
        #expect(try await store.projectID(named: "shop") == 1)
        let found = try await store.commit(Sample.group(Self.records), writer: 0)
        #expect(Set(found.keys) == Set(Self.records.map(\.key)))
        // Whatever kind of fingerprint the rows have: values decide.
        #expect(try await store.compare(Self.records, writer: 0) == Self.records.map { _ in true })
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(2))]), writer: 0) == [:])
        #expect(try await fixture.rows("SELECT count(*), count(received_at) FROM events") == [["5", "5"]])
        #expect(try await fixture.rows("SELECT created, acknowledged, word FROM installs") == [["4", "1", "2"]])
        await store.close()
    }

    @Test("A month that a server of before was splitting off when it ended is whole again, each row once (I2)")
    func halfSplitIsMigrated() async throws {
        let fixture = try await Self.restored(.postgres, "002_reads")
        let bucket = Sample.day + 125
        let records = (1...20).map { Sample.record(Sample.id($0, day: bucket)) }
        let values = records.map { "(1, '\($0.key.id)', \(bucket), 'e', 'd', now(), \($0.fingerprint), '{}')" }.joined(separator: ", ")
        try await fixture.execute(
            """
            INSERT INTO events (project_id, event_id, bucket, event, distinct_id, time, fingerprint, properties) VALUES \(values);
            ALTER TABLE events_future ADD CONSTRAINT hapax_moving_20574_20605 CHECK (bucket >= 20605) NOT VALID;
            CREATE TABLE events_2026_05 (LIKE events INCLUDING DEFAULTS INCLUDING INDEXES, CONSTRAINT hapax_month CHECK
              (bucket >= 20574 AND bucket < 20605));
            WITH moved AS (DELETE FROM events_future WHERE ctid IN (SELECT ctid FROM events_future LIMIT 7) RETURNING *)
              INSERT INTO events_2026_05 SELECT * FROM moved
            """)
        #expect(try await fixture.rows("SELECT count(*) FROM events WHERE bucket = \(bucket)") == [["13"]])
        let store = try await fixture.open()
        #expect(try await fixture.rows("SELECT count(*) FROM events WHERE bucket = \(bucket)") == [["20"]])
        try await store.performUpkeep()
        #expect(try await fixture.rows("SELECT count(*) FROM events_2026_05") == [["20"]])
        #expect(try await store.commit(Sample.group(records), writer: 0).count == 20)
        await store.close()
    }

    /// Writes the files of this version, once: `HAPAX_WRITE_STORE_FILES=DIRECTORY swift test --filter writeStoreFiles`.
    @Test(.enabled(if: ProcessInfo.processInfo.environment["HAPAX_WRITE_STORE_FILES"] != nil, "only when a version is released"))
    func writeStoreFiles() async throws {
        let directory = try #require(ProcessInfo.processInfo.environment["HAPAX_WRITE_STORE_FILES"])
        let version = try #require(PostgresSchema.migrations.last?.name)
        let postgres = try await StoreUnderTest(.postgres)
        try await Self.fill(postgres.open())
        let dump = try await PostgresCluster.shared.dump(postgres.place)
        try dump.write(toFile: "\(directory)/\(version).sql", atomically: true, encoding: .utf8)
        let sqlite = try await StoreUnderTest(.sqlite)
        try await Self.fill(sqlite.open())
        try FileManager.default.copyItem(atPath: sqlite.place, toPath: "\(directory)/\(version).sqlite")
    }
}
