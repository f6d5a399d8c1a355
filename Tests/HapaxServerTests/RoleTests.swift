import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

@Suite("The role that serves can add events and never take one away (I9)", .serialized, .endsWhenItHangs)
struct RoleTests {
    @Test("With both roles everything works, and the serving one can neither delete nor update, drop, alter nor truncate")
    func servingRoleOnlyAdds() async throws {
        let roles = try await TwoRoles()
        let store = try await roles.open(admin: roles.admin)
        #expect(try await store.projectID(named: "shop") == 1)
        let report = try #require(InstallReport(.init(installID: Sample.id(9), reportVersion: 1, created: 3), projectID: 1))
        for _ in 0..<2 { _ = try await store.commit(Sample.group([Sample.record(Sample.id(1))], reports: [report]), writer: 0) }
        try await store.performUpkeep()
        try await store.check()
        let serving = try PostgresConnection(uri: roles.serving)
        for sql in [
            "DELETE FROM events", "UPDATE events SET event = 'x'", "TRUNCATE events", "DROP TABLE events", "ALTER TABLE events ADD a int",
            "DELETE FROM events_2026_01", "DROP TABLE events_2026_01", "ALTER TABLE events DETACH PARTITION events_2026_01",
            "DELETE FROM projects", "UPDATE retention SET horizon = 99999", "CREATE TABLE mine (a int)", "CREATE INDEX ON events (event)",
        ] {
            let error = #expect(throws: PostgresError.self, "\(sql)") { try serving.execute(sql) }
            #expect(error?.sqlState == "42501", "\(sql)")
        }
        #expect(try await PostgresCluster.shared.query("SELECT count(*) FROM events", database: roles.owner) == [["1"]])
        await store.close()
    }

    @Test("Without the admin role the server serves what was made before, and warns how many months are left")
    func servingRoleAloneServes() async throws {
        let roles = try await TwoRoles()
        await (try roles.open(admin: roles.admin)).close()
        let log = RecordedLog()
        let store = try await roles.open(admin: nil, day: Sample.day + 31, logger: log.logger)
        #expect(try await store.commit(Sample.group([Sample.record(Sample.id(1))]), writer: 0).isEmpty)
        try await store.performUpkeep()
        #expect(log.lines.contains { $0.message.contains("may make no partitions") && $0.metadata["store.months.left"] == "23" })
        await store.close()
        let fresh = try await TwoRoles()
        let error = await #expect(throws: StoreError.self) { try await fresh.open(admin: nil) }
        guard case .unusable(let reason) = error else { Issue.record("\(String(describing: error))"); return }
        #expect(reason.contains("store-admin"))
    }
}

/// Two roles of a real PostgreSQL: one that owns the tables, one that serves.
struct TwoRoles {
    let owner: String
    let admin: String
    let serving: String

    init() async throws {
        owner = try await PostgresCluster.shared.makeDatabase()
        let name = String(owner.split(separator: "/").last ?? "")
        let serving = "serving_\(name)"
        let admin = "admin_\(name)"
        _ = try await PostgresCluster.shared.query(
            """
            CREATE ROLE \(serving) LOGIN PASSWORD 'p'; CREATE ROLE \(admin) LOGIN PASSWORD 'p';
            GRANT CREATE, USAGE ON SCHEMA public TO \(admin); REVOKE CREATE ON SCHEMA public FROM PUBLIC
            """, database: owner)
        let place = owner.split(separator: "@").last ?? ""
        self.serving = "postgres://\(serving):p@\(place)"
        self.admin = "postgres://\(admin):p@\(place)"
    }

    func open(admin: String?, day: Int32 = Sample.day, logger: Logger? = nil) async throws -> PostgresEventStore {
        var options = PostgresEventStore.Options()
        options.admin = admin
        return try await PostgresEventStore(
            uri: serving, options: options, today: { day },
            logger: logger ?? Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    }
}
