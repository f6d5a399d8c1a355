import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// Events in one SQLite file, for a single server process: the embedded default, with nothing to install.
package final class SQLiteEventStore: EventStore {
    private let database: DatabaseQueue
    /// Held until the store is closed.
    private let lock: Locked<FileLock?>
    /// Whether the latest commit failed; then reading is no proof that the store works.
    private let hasFailed = Locked(false)

    /// Opens or creates the file, alone.
    ///
    /// - Parameter path: The database file; missing directories are made. A lock file and SQLite's own files stand beside it.
    /// - Throws: ``StoreError/unusable(_:)`` if another server has it open, or a newer server migrated it.
    package init(path: String) throws(StoreError) {
        let path = DatabaseFile.prepare(path)
        do throws(FileLock.Failure) {
            lock = Locked(try FileLock(path: path + ".lock"))
        } catch {
            switch error {
            case .taken: throw .unusable("another process has \(path) open")
            case .system(let code): throw .unusable("\(path).lock cannot be locked: \(String(cString: strerror(code)))")
            }
        }
        do {
            database = try DatabaseFile.open(path: path, synchronous: .full, label: "hapax.store")
            let migrator = SQLiteSchema.migrator
            if try database.read({ try migrator.hasBeenSuperseded($0) }) {
                throw StoreError.unusable("its schema is newer than this server")
            }
            try migrator.migrate(database)
        } catch {
            throw Self.translated(error)
        }
    }

    /// SQLite has one writer at a time.
    package var writerCount: Int { 1 }

    /// Nothing is ever removed from the embedded store.
    package var horizon: Int32 { 0 }

    package func projectID(named name: String) async throws(StoreError) -> Int32 {
        do {
            return try await database.write { db in
                try db.execute(sql: "INSERT INTO projects (name) VALUES (?) ON CONFLICT DO NOTHING", arguments: [name])
                return try Int32.fetchOne(db, sql: "SELECT project_id FROM projects WHERE name = ?", arguments: [name]) ?? 0
            }
        } catch {
            throw Self.translated(error)
        }
    }

    package func commit(_ group: StoreGroup, writer: Int) async throws(StoreError) -> [EventKey: Int64] {
        do {
            let found = try await database.write { db in try Self.store(group, in: db) }
            // Where the system's COMMIT leaves it in the drive's cache (I4).
            guard lock.withLock({ $0?.flushDrive() ?? 0 }) == 0 else { throw StoreError.unavailable("the drive's cache cannot be flushed") }
            hasFailed.withLock { $0 = false }
            return found
        } catch {
            hasFailed.withLock { $0 = true }
            throw Self.translated(error)
        }
    }

    package func check() async throws(StoreError) {
        do {
            guard hasFailed.withLock({ $0 }) else { return _ = try await database.read { try Int.fetchOne($0, sql: "SELECT 1") } }
            // After a failure only a write of some size that reaches the disk shows that there is room again.
            try await database.write { db in
                try db.execute(sql: "INSERT INTO projects (name) VALUES (zeroblob(65536))")
                try db.execute(sql: "DELETE FROM projects WHERE length(name) = 65536")
            }
            hasFailed.withLock { $0 = false }
        } catch {
            throw Self.translated(error)
        }
    }

    package func performUpkeep() async throws(StoreError) {}

    package func close() async {
        try? database.close()
        lock.withLock { $0 = nil }
    }

    private static func store(_ group: StoreGroup, in db: Database) throws -> [EventKey: Int64] {
        let insert = try db.cachedStatement(sql: SQLiteSchema.insertEvent)
        let select = try db.cachedStatement(sql: SQLiteSchema.selectFingerprint)
        var found: [EventKey: Int64] = [:]
        func fingerprint(_ key: EventKey) throws -> Int64? {
            try Int64.fetchOne(select, arguments: [Data(key.id.bytes), key.projectID])
        }
        for record in group.records {
            try insert.execute(arguments: record.arguments)
            if db.changesCount == 0 { found[record.key] = try fingerprint(record.key) }
        }
        for key in group.lookups { found[key] = try fingerprint(key) }
        for book in group.books { try keep(book, in: db) }
        return found
    }

    private static func keep(_ book: InstallBooks, in db: Database) throws {
        let install = Data(book.installID.bytes)
        try db.cachedStatement(sql: SQLiteSchema.upsertInstall)
            .execute(arguments: [book.projectID, install, book.created, book.waiting])
        for (reason, count) in book.dropped {
            try db.cachedStatement(sql: SQLiteSchema.upsertDrop).execute(arguments: [book.projectID, install, reason, count])
        }
    }

    /// No failure of SQLite is an event's fault: every value has been checked, and its column takes it.
    private static func translated(_ error: any Error) -> StoreError {
        switch error {
        case let error as StoreError: error
        case let error as DatabaseError: .unavailable("SQLite error \(error.extendedResultCode.rawValue)")
        default: .unavailable("SQLite failed")
        }
    }
}

extension EventRecord {
    fileprivate var arguments: StatementArguments {
        [
            key.projectID, Data(key.id.bytes), String(decoding: name, as: UTF8.self), String(decoding: distinctID, as: UTF8.self),
            time, sentAt, receivedAt, installID.map { Data($0.bytes) }, sequence, fingerprint,
            String(decoding: properties, as: UTF8.self),
        ]
    }
}
