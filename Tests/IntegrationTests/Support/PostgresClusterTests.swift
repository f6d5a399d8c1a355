import Foundation
import TestSupport
import Testing

/// The support must be right before anything that stands on it can be believed.
@Suite(.endsWhenItHangs)
struct PostgresClusterTests {
    @Test("I4: the shared cluster runs with durable settings")
    func settingsAreDurable() async throws {
        let cluster = try await PostgresCluster.shared
        let database = try await cluster.makeDatabase()
        let rows = try await cluster.query(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')",
            database: database)
        #expect(rows == [["on", "on", "on"]])
    }

    @Test func eachDatabaseIsEmptyAndItsOwn() async throws {
        let cluster = try await PostgresCluster.shared
        let first = try await cluster.makeDatabase()
        let second = try await cluster.makeDatabase()
        _ = try await cluster.query("CREATE TABLE t (a int, b text)", database: first)
        #expect(first != second)
        #expect(try await cluster.query("SELECT count(*) FROM pg_tables WHERE tablename = 't'", database: second) == [["0"]])
    }

    @Test func queryKeepsFieldsThatHoldSeparatorsAndLineEnds() async throws {
        let cluster = try await PostgresCluster.shared
        let database = try await cluster.makeDatabase()
        let rows = try await cluster.query(
            "SELECT * FROM (VALUES (1, E'a|b\\nc'), (2, NULL), (3, E'end\\n')) v ORDER BY 1", database: database)
        #expect(rows == [["1", "a|b\nc"], ["2", ""], ["3", "end\n"]])
        #expect(try await cluster.query("SELECT 1 WHERE false", database: database) == [])
        await #expect(throws: (any Error).self) { try await cluster.query("SELECT nonsense", database: database) }
    }

    @Test("a private cluster stopped at once keeps what was committed and gets its port back")
    func committedRowsSurviveAnImmediateStop() async throws {
        let cluster = try await PostgresCluster()
        let database = try await cluster.makeDatabase()
        _ = try await cluster.query("CREATE TABLE t (a int); INSERT INTO t VALUES (7)", database: database)
        try await cluster.stop(mode: .immediate)
        await #expect(throws: (any Error).self) { try await cluster.query("SELECT 1", database: database) }
        try await cluster.start()
        #expect(try await cluster.query("SELECT a FROM t", database: database) == [["7"]])
    }
}
