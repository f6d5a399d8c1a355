import Foundation
import GRDB
import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

/// A store of either kind that can be opened again, and read and changed behind the server's back.
struct StoreUnderTest {
    enum Kind: String, CaseIterable, Sendable, CustomTestStringConvertible {
        case postgres, sqlite
        var testDescription: String { rawValue }
    }

    let kind: Kind
    /// The database's URI, or the file's path.
    let place: String
    private let directory = TemporaryDirectory()
    private static let start = ContinuousClock.now

    init(_ kind: Kind) async throws {
        self.kind = kind
        switch kind {
        case .postgres: place = try await PostgresCluster.shared.makeDatabase()
        case .sqlite: place = directory.path + "/events.sqlite"
        }
    }

    /// - Parameter currentTime: For SQLite; PostgreSQL has a clock of its own.
    func open(
        currentTime: @escaping @Sendable () -> Int64 = { Sample.now }, uptime: (@Sendable () -> ContinuousClock.Instant)? = nil
    ) async throws -> any EventStore {
        switch kind {
        case .postgres: try await Self.postgres(place)
        case .sqlite:
            // As much time passes as the clock says, unless a test is about that.
            try SQLiteEventStore(
                path: place, currentTime: currentTime, uptime: uptime ?? { Self.start + .milliseconds(currentTime()) })
        }
    }

    /// With a clock that goes on with each look.
    func openWithMovingClock() async throws -> any EventStore {
        let clock = Locked(Sample.now)
        return try await open {
            clock.withLock { now in
                now += 1
                return now
            }
        }
    }

    static func postgres(_ uri: String, options: PostgresEventStore.Options = .init()) async throws -> PostgresEventStore {
        try await PostgresEventStore(
            uri: uri, options: options, today: { Sample.day },
            logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    }

    /// All that a sender decides, as text that is the same for both kinds.
    var allColumns: String {
        kind == .postgres
            ? """
            project_id, event_id, event, distinct_id, (extract(epoch FROM time) * 1000)::bigint, (extract(epoch FROM sent_at) * 1000)::bigint,
            install_id, sequence, properties
            """
            : """
            project_id, \(Self.uuid("event_id")), event, distinct_id, time, sent_at, \(Self.uuid("install_id")), sequence, properties
            """
    }

    static func uuid(_ column: String) -> String {
        let hex = "lower(hex(\(column)))"
        let parts = [(1, 8), (9, 4), (13, 4), (17, 4), (21, 12)].map { "substr(\(hex), \($0.0), \($0.1))" }
        return parts.joined(separator: " || '-' || ")
    }

    /// Rows of text; NULL reads as empty.
    func rows(_ sql: String) async throws -> [[String]] {
        switch kind {
        case .postgres: try await PostgresCluster.shared.query(sql, database: place)
        case .sqlite:
            try await DatabaseQueue(path: place).read { db in
                try Row.fetchAll(db, sql: sql).map { row in row.databaseValues.map { String.fromDatabaseValue($0) ?? "\($0)" } }
            }
        }
    }

    func execute(_ sql: String) async throws {
        switch kind {
        case .postgres: _ = try await PostgresCluster.shared.query(sql, database: place)
        case .sqlite: try await DatabaseQueue(path: place).write { try $0.execute(sql: sql) }
        }
    }
}
