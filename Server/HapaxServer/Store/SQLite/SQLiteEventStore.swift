import Foundation
import GRDB
import GRDBSQLite
import HapaxModel
import HapaxSQLite

/// Events in one SQLite file, for a single server process: the embedded default, with nothing to install.
package final class SQLiteEventStore: EventStore {
    let database: DatabaseQueue
    package var reader: any EventReader { rows }
    private let rows: SQLiteReader
    package let sql: any SQLStore
    /// Held until the store is closed.
    private let lock: Locked<FileLock?>
    /// Whether the latest commit failed; then reading is no proof that the store works.
    private let hasFailed = Locked(false)
    private let known: Locked<Int32>
    private let clock: SQLiteClock

    /// Opens or creates the file, and locks it against other processes.
    ///
    /// - Parameters:
    ///   - path: The database file; missing directories are made. A lock file and SQLite's own files lie next to it.
    ///   - currentTime: The wall clock in Unix milliseconds, for `received_at`.
    ///   - uptime: The clock that nobody sets, by which a jump of the other is known.
    /// - Throws: ``StoreError/inUse(path:)``; ``StoreError/unusable(_:)`` if it is on a network file system, or this version cannot read it.
    package init(
        path: String, currentTime: @escaping @Sendable () -> Int64,
        uptime: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) throws(StoreError) {
        let path = DatabaseFile.prepare(path)
        if FileSystem.isShared(path) { throw .unusable("\(path) is on a network file system, and SQLite's log works on one machine only") }
        do throws(FileLock.Failure) {
            lock = Locked(try FileLock(path: path + ".lock"))
        } catch {
            switch error {
            case .taken: throw .inUse(path: path)
            case .system(let code): throw .unusable("\(path).lock cannot be locked: \(String(cString: strerror(code)))")
            }
        }
        try SQLiteNumber.check(path)
        do {
            database = try DatabaseFile.open(path: path, synchronous: .full, label: "hapax.store")
            // An erased event leaves nothing behind in the file (https://www.sqlite.org/pragma.html#pragma_secure_delete).
            try database.writeWithoutTransaction { db in
                try db.execute(sql: "PRAGMA secure_delete = ON")
                db.add(function: SQLiteSchema.bucket)
                SQLiteSequenceSets.add(to: db)
            }
            let migrator = SQLiteSchema.migrator
            let applied = try database.read { try migrator.appliedIdentifiers($0) }
            if applied.contains(SQLiteSchema.unreleasedMigration) {
                throw StoreError.unusable(
                    "\(path) was made by a version before the first release, which no later one reads; it is left as it is: name another file"
                )
            }
            if let newer = applied.subtracting(migrator.migrations).min() {
                throw StoreError.unusable("\(path) is newer than this server: it has had the migration \(newer)")
            }
            try migrator.migrate(database)
            known = Locked(try database.read(Self.horizon))
            // Even if the clock goes back over a restart, no event may be received before an instant up to which reports have counted.
            let marks = try database.read { db in
                try Row.fetchOne(
                    db,
                    sql: """
                        SELECT coalesce((SELECT received_at FROM events ORDER BY row DESC LIMIT 1), 0), (SELECT late_to FROM report_late_progress),
                          coalesce((SELECT max(folded_to) FROM report_progress), 0), (SELECT accepted FROM clock)
                        """
                ).map { row in (0..<4).map { row[$0] as Int64? ?? 0 } } ?? [0, 0, 0, 0]
            }
            let clock = SQLiteClock(
                last: max(marks[0], marks[1], marks[2]), known: marks[1] == 0 ? marks[0] : marks[1], accepted: marks[3],
                currentTime: currentTime, uptime: uptime)
            self.clock = clock
            let reader = try SQLiteReader(path: path)
            rows = reader
            sql = SQLiteSQLStore(reader: reader, server: (database, clock))
        } catch {
            throw Self.translated(error)
        }
    }

    /// SQLite has one writer at a time.
    package var writerCount: Int { 1 }

    package var horizon: Int32 { known.withLock { $0 } }

    package func projectID(named name: String) async throws(StoreError) -> Int32 {
        do {
            let number = try await database.write { db in
                try db.execute(
                    sql: "INSERT INTO projects (name, public_id) VALUES (?, lower(hex(randomblob(8)))) ON CONFLICT DO NOTHING",
                    arguments: [name])
                return try Int32.fetchOne(db, sql: "SELECT project_id FROM projects WHERE name = ?", arguments: [name])
            }
            guard let number else { throw StoreError.unavailable("a project has no number") }
            return number
        } catch {
            throw Self.translated(error)
        }
    }

    package func commit(_ group: StoreGroup, writer: Int) async throws(StoreError) -> [EventKey: Int64] {
        do {
            let found = try await database.write { db in
                let receivedAt = clock.read().settled
                let horizon = try Self.horizon(db)
                known.withLock { $0 = horizon }
                guard group.horizon >= horizon else { throw StoreError.collided }
                return try Self.store(group, receivedAt: receivedAt, in: db)
            }
            // On Apple's systems SQLite's COMMIT leaves the data in the drive's cache (I4).
            guard lock.withLock({ $0?.flushDrive() ?? 0 }) == 0 else { throw StoreError.unavailable("the drive's cache cannot be flushed") }
            hasFailed.withLock { $0 = false }
            return found
        } catch {
            hasFailed.withLock { $0 = true }
            throw Self.translated(error)
        }
    }

    private static func horizon(_ db: Database) throws -> Int32 {
        guard let horizon = try Int32.fetchOne(db.cachedStatement(sql: "SELECT horizon FROM retention")) else {
            throw StoreError.unavailable("its retention cannot be read")
        }
        return horizon
    }

    package func compare(_ records: [EventRecord], writer: Int) async throws(StoreError) -> [Bool?] {
        try await rows.compare(records)
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

    /// The embedded store has no partitions.
    package var crowdedMonths: [CrowdedMonth] { [] }

    /// Indexes the users of new rows (``SQLiteUserRuns``), and copies the write-ahead log into the file.
    package func refresh() async throws(StoreError) {
        while let (segment, runs) = try await rows.read(SQLiteUserRuns.next) {
            do {
                try await database.write { db in try SQLiteUserRuns.keep(segment, runs, in: db) }
            } catch {
                throw Self.translated(error)
            }
        }
        await emptyLog()
    }

    /// Lets a copy of the file alone lack only the latest seconds. Does not wait for readers of an older state: the next refresh tries again.
    private func emptyLog() async {
        try? await database.writeWithoutTransaction { db in
            try db.execute(sql: "PRAGMA busy_timeout = 0")
            defer { try? db.execute(sql: "PRAGMA busy_timeout = \(DatabaseFile.busyMilliseconds)") }
            _ = try db.checkpoint(.truncate)
        }
    }

    package func performUpkeep() async throws(StoreError) {}

    package func close() async {
        await reader.close()
        try? database.close()
        lock.withLock { $0 = nil }
    }

    private static let insertEvent = """
        INSERT INTO events (project_id, event_id, event, distinct_id, time, sent_at, received_at, install_id, sequence, fingerprint, properties)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id, project_id) DO NOTHING
        """

    static let selectFingerprint = "SELECT fingerprint FROM events WHERE event_id = ? AND project_id = ?"

    private static func store(_ group: StoreGroup, receivedAt: Int64, in db: Database) throws -> [EventKey: Int64] {
        let insert = try db.cachedStatement(sql: Self.insertEvent)
        let select = try db.cachedStatement(sql: Self.selectFingerprint)
        var found: [EventKey: Int64] = [:]
        func fingerprint(_ key: EventKey) throws -> Int64? {
            try Int64.fetchOne(select, arguments: [Data(key.id.bytes), key.projectID])
        }
        for record in group.records {
            try insert.insert(group.record(record), receivedAt: receivedAt, db)
            if db.changesCount == 0 {
                // A row neither inserted nor found was swallowed by a foreign trigger: nothing of the group may be reported as stored.
                guard let there = try fingerprint(record.key) else { throw StoreError.unavailable("the table did not take a row") }
                found[record.key] = there
            }
        }
        for key in group.lookups { found[key] = try fingerprint(key) }
        for entry in group.entries(found: found) { try SQLiteBooks.keep(entry, heardAt: receivedAt, in: db) }
        return found
    }

    /// No failure of SQLite is an event's fault: every value has been checked, and its column takes it.
    static func translated(_ error: any Error) -> StoreError {
        switch error {
        case let error as StoreError: error
        case let error as DatabaseError: .unavailable("SQLite error \(error.extendedResultCode.rawValue)")
        default: .unavailable("SQLite failed")
        }
    }
}

extension Statement {
    /// Runs ``SQLiteSchema/insertEvent`` with values bound where they lie: GRDB's arguments would copy each into an object of its own, which takes
    /// longer than the rest.
    fileprivate func insert(_ record: EventRecord, receivedAt: Int64, _ db: Database) throws {
        let key = (record.key.id.high.bigEndian, record.key.id.low.bigEndian)
        let install = record.installID.map { ($0.high.bigEndian, $0.low.bigEndian) } ?? (0, 0)
        // SQLite, unlike jsonb, stores escaped and repeated keys as they are.
        let properties = PlainKeys.plain(record.properties)
        let statement = sqliteStatement
        func text(_ number: Int32, _ bytes: UnsafeRawBufferPointer) {
            // No destructor: the bytes outlive the step.
            sqlite3_bind_text(statement, number, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(bytes.count), nil)
        }
        func integer(_ number: Int32, _ value: Int64?) {
            if let value { sqlite3_bind_int64(statement, number, value) } else { sqlite3_bind_null(statement, number) }
        }
        let status = withUnsafeBytes(of: key) { key in
            withUnsafeBytes(of: install) { install in
                record.name.withUnsafeBytes { name in
                    record.distinctID.withUnsafeBytes { distinctID in
                        properties.withUnsafeBytes { properties in
                            integer(1, Int64(record.key.projectID))
                            sqlite3_bind_blob(statement, 2, key.baseAddress, 16, nil)
                            text(3, name)
                            text(4, distinctID)
                            for (number, value) in zip(Int32(5)..., [record.time, record.sentAt, receivedAt]) { integer(number, value) }
                            sqlite3_bind_blob(statement, 8, record.installID == nil ? nil : install.baseAddress, 16, nil)
                            integer(9, record.sequence)
                            integer(10, record.fingerprint)
                            text(11, properties)
                            return sqlite3_step(statement)
                        }
                    }
                }
            }
        }
        let code = sqlite3_extended_errcode(db.sqliteConnection)
        sqlite3_reset(statement)
        guard status == SQLITE_DONE else { throw DatabaseError(resultCode: ResultCode(rawValue: code)) }
    }
}
