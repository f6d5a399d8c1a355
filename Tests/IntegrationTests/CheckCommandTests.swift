import Foundation
import GRDB
import TestSupport
import Testing

@Suite("hapax-server check", .endsWhenItHangs)
struct CheckCommandTests {
    private struct Answer: Decodable {
        struct Finding: Decodable {
            var verdict: String
            var subject: String
            var text: String
        }
        var verdict: String
        var findings: [Finding]

        /// The verdicts on a subject.
        func verdicts(_ subject: String) -> Set<String> { Set(findings.filter { $0.subject == subject }.map(\.verdict)) }
    }

    private static func run(
        _ command: String, _ arguments: String..., environment: [String: String]
    ) async throws -> (text: String, exit: ChildProcess.Exit) {
        let child = try ChildProcess("hapax-server", [command] + arguments, environment: environment)
        let text = await child.remainingOutput()
        return (text, await child.waitUntilExit())
    }

    /// The exit code is the worst verdict.
    private static func check(_ environment: [String: String]) async throws -> Answer {
        let (text, code) = try await run("check", "--json", environment: environment)
        let answer = try JSONDecoder().decode(Answer.self, from: Data(text.utf8))
        let worst = ["ok", "warn", "fail"].lastIndex { verdict in answer.findings.contains { $0.verdict == verdict } } ?? 0
        #expect(code == .exited(Int32(worst)) && answer.verdict == ["ok", "warn", "fail"][worst], "\(text)")
        return answer
    }

    /// What the next start would do, of each migration: no text is empty (S19).
    private static func expectUpgradeIsTold(_ environment: [String: String], _ parts: [String]) async throws {
        let text = try await run("check", "--upgrade", environment: environment).text
        #expect(parts.allSatisfy { text.contains($0) } && !text.contains("()"), "\(text)")
    }

    @Test("From an empty directory to a store that serves: what is missing is said, nothing is made, and at last all is well")
    func embeddedStoreIsChecked() async throws {
        let directory = TemporaryDirectory()
        let file = directory.path("events.sqlite")
        var environment = ["HAPAX_STORE": "sqlite:\(file)", "HAPAX_PORT": "0", "HAPAX_LOG_LEVEL": "critical"]
        #expect(try await Self.check(environment).verdicts("schema") == ["warn"])
        #expect(!FileManager.default.fileExists(atPath: file))
        _ = try await Self.run("projects", "add", "shop", "--without-keys", environment: environment)
        #expect(try await Self.check(environment).verdicts("keys") == ["fail"])
        _ = try await Self.run("keys", "add", "read", "--project", "shop", "--expires", "3d", environment: environment)
        #expect(try await Self.check(environment).verdicts("keys") == ["ok", "warn"])
        _ = try await Self.run("keys", "revoke", "1", environment: environment)
        _ = try await Self.run("keys", "add", "write", "--project", "shop", environment: environment)
        let server = try ChildProcess("hapax-server", environment: environment)
        _ = try await server.line(after: "listening on")
        // What the machine itself deserves, an old time zone database or a full disk, is not this test's matter.
        let good = try await Self.check(environment)
        for subject in ["schema", "store", "days", "keys", "retention"] { #expect(good.verdicts(subject) == ["ok"], "\(subject)") }
        let alerts = try await Self.run("check", "--alerts", environment: environment).text
        #expect(alerts.split(separator: "\n").count == good.findings.count { $0.verdict != "ok" } && !alerts.contains("ok  "))
        #expect(try await Self.run("check", environment: environment).text.hasPrefix("ok    settings"))
        server.terminate()
        await server.waitUntilExit()

        let certificate = try await TestCertificate(in: directory)
        let secret = directory.path("keys")
        try "shop=a-key-in-a-file-of-its-own".write(toFile: secret, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: secret)
        environment.merge([
            "HAPAX_WRITE_KEYS_FILE": secret, "HAPAX_PROT": "1", "HAPAX_TLS_CERTIFICATE": certificate.certificate,
            "HAPAX_TLS_KEY": certificate.key,
        ]) { $1 }
        let warned = try await Self.check(environment)
        #expect(warned.verdicts("static keys") == ["warn"] && warned.verdicts("secrets").contains("warn"))
        #expect(warned.verdicts("settings") == ["ok", "warn"] && !warned.verdicts("certificate").isEmpty)
        #expect(try await Self.run("check", "--alerts", environment: environment).text.contains("chmod o-rwx \(secret)"))

        try await DatabaseQueue(path: file).write { try $0.execute(sql: "INSERT INTO grdb_migrations VALUES ('999_later')") }
        #expect(try await Self.check(environment).verdicts("schema") == ["fail"])
        try await DatabaseQueue(path: file).write {
            try $0.execute(sql: "DELETE FROM grdb_migrations WHERE identifier IN ('999_later', '006_retention')")
        }
        #expect(try await Self.check(environment).verdicts("schema") == ["warn"])
        try await DatabaseQueue(path: file).write {
            try $0.execute(sql: "DELETE FROM grdb_migrations WHERE identifier > '007'; INSERT INTO report_users VALUES (1, 'u', 0, 0, 0)")
        }
        try await Self.expectUpgradeIsTold(
            environment, ["008_blocked_users (makes", "009_returns (writes", "about 1 rows of report_users"])
        environment["HAPAX_PORT"] = "eighty"
        #expect(try await Self.check(environment).findings.count == 1)
    }

    @Test("PostgreSQL: without tables, with them, without keys, with settings that lose events, away")
    func postgresIsChecked() async throws {
        let uri = try await PostgresCluster.shared.makeDatabase()
        var environment = [
            "HAPAX_STORE": uri, "HAPAX_PORT": "0", "HAPAX_LOG_LEVEL": "critical", "HAPAX_WRITE_KEYS": "shop=\(ServerUnderTest.key)",
        ]
        #expect(try await Self.check(environment).verdicts("schema") == ["warn"])
        let tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        #expect(try await PostgresCluster.shared.query(tables, database: uri) == [["0"]])
        let server = try ChildProcess("hapax-server", environment: environment)
        _ = try await server.line(after: "listening on")
        let good = try await Self.check(environment)
        for subject in ["schema", "roles", "clock", "store", "months", "days", "retention"] {
            #expect(good.verdicts(subject) == ["ok"], "\(subject)")
        }
        #expect(good.verdicts("static keys") == ["warn"])
        server.terminate()
        await server.waitUntilExit()
        environment["HAPAX_WRITE_KEYS"] = nil
        #expect(try await Self.check(environment).verdicts("keys") == ["fail"])
        let trigger = """
            CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
            CREATE TRIGGER swallow BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION nothing()
            """
        _ = try await PostgresCluster.shared.query(trigger, database: uri)
        #expect(try await Self.check(environment).verdicts("triggers") == ["fail"])
        _ = try await PostgresCluster.shared.query("DELETE FROM hapax_migrations WHERE name >= '009'; ANALYZE installs", database: uri)
        try await Self.expectUpgradeIsTold(environment, ["009_books (adds the books", "rows of installs", "013_clock (makes"])
        let lose = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$"
        _ = try await PostgresCluster.shared.query(lose, database: uri)
        #expect(try await Self.check(environment).verdicts("durability") == ["fail"])
        environment["HAPAX_STORE"] = "postgres://127.0.0.1:1/nothing"
        #expect(try await Self.check(environment).verdicts("store") == ["fail"])
    }
}
