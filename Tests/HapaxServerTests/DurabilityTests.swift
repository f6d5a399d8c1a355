import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// What must hold of PostgreSQL for an acknowledged event to survive a crash, whatever somebody changes while the server runs.
@Suite("Durable settings, while the server runs (I4)", .serialized, .endsWhenItHangs)
struct DurabilityTests {
    /// A database in a cluster of its own, whose settings may be changed.
    private struct Fixture {
        let cluster: PostgresCluster
        let uri: String
        let store: PostgresEventStore

        init() async throws {
            cluster = try await PostgresCluster()
            uri = try await cluster.makeDatabase()
            var options = PostgresEventStore.Options()
            options.durabilityRecheck = .zero
            options.writers = 1
            store = try await StoreUnderTest.postgres(uri, options: options)
        }

        func change(_ setting: String) async throws {
            _ = try await cluster.query("ALTER SYSTEM SET \(setting)", database: uri)
            _ = try await cluster.query("SELECT pg_reload_conf()", database: uri)
            // A session reads the file again between two statements; a new one says when the server has.
            let (name, value) = (setting.prefix { $0 != " " }, setting.split(separator: " ").last ?? "")
            while try await cluster.query("SHOW \(name)", database: uri) != [["\(value)"]] {}
        }

        func commit(_ number: UInt64) async throws -> StoreError? {
            do throws(StoreError) {
                _ = try await store.commit(Sample.group([Sample.record(Sample.id(number))]), writer: 0)
                return nil
            } catch {
                return error
            }
        }

        func stop() async throws {
            await store.close()
            try await cluster.stop(mode: .fast)
        }
    }

    @Test("synchronous_commit, switched off and reloaded, does not reach a session that runs; a new one refuses to work")
    func synchronousCommitIsPinned() async throws {
        let fixture = try await Fixture()
        #expect(try await fixture.commit(1) == nil)
        // Each row says with which setting it was committed.
        _ = try await fixture.cluster.query(
            """
            CREATE TABLE seen (setting text);
            CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
              'BEGIN INSERT INTO seen VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END';
            CREATE TRIGGER see AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION see();
            """, database: fixture.uri)
        try await fixture.change("synchronous_commit = off")
        for number: UInt64 in 2...3 { #expect(try await fixture.commit(number) == nil) }
        #expect(try await fixture.cluster.query("SELECT DISTINCT setting FROM seen", database: fixture.uri) == [["on"]])
        _ = try await fixture.cluster.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
            database: fixture.uri)
        let error = try await fixture.commit(4)
        guard case .unusable(let reason) = error else { Issue.record("\(String(describing: error))"); return }
        #expect(reason.contains("synchronous_commit=off"))
        try await fixture.stop()
    }

    @Test("What cannot be pinned is seen while the server runs: nothing is acknowledged, and readiness says so, until it is mended")
    func unsafeServerIsNoticed() async throws {
        let fixture = try await Fixture()
        #expect(try await fixture.commit(1) == nil)
        var number: UInt64 = 1
        // S10: without track_activities nobody sees whose transaction is still open, and a day would close too early.
        for (setting, mend) in [
            ("fsync = off", "fsync = on"), ("full_page_writes = off", "full_page_writes = on"),
            ("track_activities = off", "track_activities = on"),
        ] {
            try await fixture.change(setting)
            let name = "\(setting.prefix { $0 != " " })=off"
            guard case .unusable(let reason) = try await fixture.commit(number + 1) else { Issue.record("\(setting)"); return }
            #expect(reason.contains(name))
            await #expect(throws: StoreError.self) { try await fixture.store.check() }
            try await fixture.change(mend)
            number += 1
            #expect(try await fixture.commit(number) == nil)
            try await fixture.store.check()
        }
        _ = try await fixture.cluster.query("ALTER TABLE events_2026_01 SET UNLOGGED", database: fixture.uri)
        guard case .unusable(let reason) = try await fixture.commit(9) else { Issue.record("UNLOGGED"); return }
        #expect(reason.contains("events_2026_01 UNLOGGED"))
        #expect(try await fixture.cluster.query("SELECT count(*) FROM events", database: fixture.uri) == [["4"]])
        try await fixture.stop()
    }

    @Test("S10: a clock behind what days have closed by, or what was told as settled, stores nothing until it is past it")
    func clockBehindIsNoticed() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        var options = PostgresEventStore.Options()
        options.durabilityRecheck = .zero
        await (try StoreUnderTest.postgres(uri)).close()
        // Its clock goes back as behind a failover: the first half of this is an hour ahead.
        let connection = try PostgresConnection(uri: uri)
        try connection.execute(
            """
            CREATE SCHEMA ahead;
            CREATE FUNCTION ahead.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.now() + make_interval(hours => 1)'
            """)
        let store = try await StoreUnderTest.postgres(uri + "?options=-csearch_path%3Dahead,pg_catalog,public", options: options)
        let group = Sample.group([Sample.record(Sample.id(1))])
        _ = try await store.commit(group, writer: 0)
        _ = try await store.sql.settled()
        try connection.execute("DROP SCHEMA ahead CASCADE")
        await #expect(throws: StoreError.clockBehind) { try await store.commit(group, writer: 0) }
        await #expect(throws: StoreError.clockBehind) { try await store.check() }
        await store.close()
        // Another server has told nothing, and finds what days were closed by.
        let other = try await StoreUnderTest.postgres(uri, options: options)
        _ = try await other.commit(group, writer: 0)
        try connection.execute("UPDATE report_late_progress SET late_to = now() + interval '1 hour'")
        await #expect(throws: StoreError.clockBehind) { try await other.commit(group, writer: 0) }
        try connection.execute("UPDATE report_late_progress SET late_to = now() - interval '1 hour'")
        _ = try await other.commit(group, writer: 0)
        try await other.check()
        await other.close()
    }

    @Test("A COMMIT that the server answers by rolling back is no commit")
    func rolledBackCommitIsNoticed() async throws {
        let connection = try PostgresConnection(uri: try await PostgresCluster.shared.makeDatabase())
        try connection.execute("BEGIN")
        #expect(throws: PostgresError.self) { try connection.execute("SELECT 1 / 0") }
        let error = #expect(throws: PostgresError.self) { try connection.commit() }
        #expect(error?.summary.contains("rolled back") == true)
        try connection.execute("BEGIN")
        try connection.commit()
    }
}
