import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

/// The store of one test, as the server is told of it and as the auditor reads it, apart from the code under test.
struct PipelineStore: Sendable {
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case postgres, sqlite
        var testDescription: String { rawValue }
    }

    let kind: Kind
    /// What `HAPAX_STORE` says.
    let setting: String
    private let cluster: PostgresCluster?
    private let directory: TemporaryDirectory?

    #if canImport(Glibc)
    /// On a disk that can be filled.
    init(_ kind: Kind, on disk: TinyDisk, cluster: PostgresCluster) async throws {
        self.kind = kind
        self.cluster = kind == .postgres ? cluster : nil
        directory = nil
        setting = kind == .postgres ? try await cluster.makeDatabase(in: disk.path) : "sqlite:\(disk.path)/events.sqlite"
    }
    #endif

    init(_ kind: Kind, cluster: PostgresCluster? = nil) async throws {
        self.kind = kind
        switch kind {
        case .postgres:
            let home: PostgresCluster
            if let cluster { home = cluster } else { home = try await PostgresCluster.shared }
            self.cluster = home
            setting = try await home.makeDatabase()
            directory = nil
        case .sqlite:
            let directory = TemporaryDirectory("store")
            self.directory = directory
            setting = "sqlite:" + directory.path("events.sqlite")
            self.cluster = nil
        }
    }

    /// Every row there is. At each moment the books have lost nothing, and hold just these rows (I12).
    func rows() async throws -> [Audit.Row] {
        let (before, rows, after) = (try await books(), try await storedRows(), try await books())
        for books in [before, after] { #expect(books.missing == 0 && books.unknown == 0, "\(books)") }
        let numbered = Set(rows.compactMap { row in row.install.flatMap { install in row.sequence.map { "\(install) \($0)" } } })
        // Some may be stored meanwhile.
        #expect(before.stored <= numbered.count && numbered.count <= after.stored, "\(before), \(numbered.count) rows, \(after)")
        return rows
    }

    private func books() async throws -> (stored: Int, missing: Int, unknown: Int) {
        let sql = """
            SELECT coalesce(sum(events_stored), 0), coalesce(sum(events_missing), 0), count(*) FILTER (WHERE is_unknown) FROM installs
            """
        let numbers =
            switch kind {
            case .postgres: try await query(sql).first?.compactMap { Int($0) } ?? []
            case .sqlite: try await read { db in try Row.fetchOne(db, sql: sql).map { row in (0..<3).map { row[$0] as Int } } ?? [] }
            }
        guard numbers.count == 3 else { throw Unreadable() }
        return (numbers[0], numbers[1], numbers[2])
    }

    private func storedRows() async throws -> [Audit.Row] {
        switch kind {
        case .postgres:
            return try await query(
                """
                SELECT name, event_id, coalesce(install_id::text, ''), coalesce(sequence::text, '')
                FROM events JOIN projects USING (project_id)
                """
            ).map { row in
                Audit.Row(
                    project: row[0], id: try Self.id(row[1]), install: EventID(uuidString: row[2]), sequence: Int64(row[3]))
            }
        case .sqlite:
            return try await read { db in
                try Row.fetchAll(
                    db, sql: "SELECT name, event_id, install_id, sequence FROM events JOIN projects USING (project_id)"
                ).map { row in
                    let install: Data? = row["install_id"]
                    let id: Data = row["event_id"]
                    guard let eventID = EventID(bytes: id) else { throw Unreadable() }
                    return Audit.Row(
                        project: row["name"], id: eventID, install: install.flatMap { EventID(bytes: $0) }, sequence: row["sequence"])
                }
            }
        }
    }

    /// For SQLite only.
    func read<Value: Sendable>(_ body: @Sendable (Database) throws -> Value) async throws -> Value {
        var configuration = Configuration()
        configuration.readonly = true
        configuration.busyMode = .timeout(300)
        return try await DatabaseQueue(path: String(setting.dropFirst("sqlite:".count)), configuration: configuration).read(body)
    }

    /// SQL through psql; for PostgreSQL only.
    func query(_ sql: String) async throws -> [[String]] {
        guard let cluster else { throw Unreadable() }
        return try await cluster.query(sql, database: setting)
    }

    private static func id(_ text: String) throws -> EventID {
        guard let id = EventID(uuidString: text) else { throw Unreadable() }
        return id
    }

    struct Unreadable: Error {}
}
