import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

extension EventQueue {
    /// A file that has been opened, migrated and read.
    struct Opened {
        var database: DatabaseQueue
        var books: QueueBooks
        var oldest: Int64?
        /// Still to be salvaged.
        var damagedFiles: [DamagedFile] = []
        var hasLostIdentity = false
        /// Of those that were ever set aside, as far as that is known.
        var highestDamagedFile: Int64 = 0
    }

    /// Opens the file, or sets it aside and begins a new one if it is damaged or something else (D17).
    ///
    /// What a user decided moves at once, events follow later: they stay what they are, events of the install that gave their sequences.
    static func openOrReplace(
        _ directory: QueueDirectory, _ durability: Durability, _ newInstallID: EventID, _ room: QueueRoom
    ) throws -> Opened {
        try directory.finishSettingAside()
        try directory.removeCopies()
        do {
            return try openWithDamage(directory, durability, newInstallID, room)
        } catch  where error.isDamageAtOpening {
            _ = try directory.setAside()
            return try openWithDamage(directory, durability, newInstallID, room)
        }
    }

    /// Opens the file and learns which others are still to be salvaged.
    private static func openWithDamage(
        _ directory: QueueDirectory, _ durability: Durability, _ newInstallID: EventID, _ room: QueueRoom
    ) throws -> Opened {
        var opened = try open(directory, durability, newInstallID, room)
        let files = try directory.damagedFiles()
        let known = try opened.database.read { try String.fetchAll($0, sql: "SELECT name FROM damaged_files") }
        opened.highestDamagedFile = Int64((files + known).compactMap(QueueDirectory.number).max() ?? 0)
        if files.isEmpty, known.isEmpty { return opened }
        var unread: [DamagedFile] = []
        var isUnknown = false
        opened.damagedFiles = try opened.database.write { db in
            for name in files where !known.contains(name) && !directory.isSalvaged(name) {
                let file = DamagedFile(name: name, isOwn: false)
                do {
                    let source = try QueueSalvage.state(of: name, in: directory)
                    defer { source?.close() }
                    try takeUp(file, source, db, &opened.books)
                    if source?.identity == nil { isUnknown = true }
                    // A purge may forget this one.
                    for told in source?.untold ?? [] { try told.insertIfUnknown(db) }
                } catch  where error.isTrouble {
                    // As with no descriptor left. Not remembered, so that the salvage or the next opening looks again for whom it concerns.
                    unread.append(file)
                    isUnknown = true
                    try leaveNumbers(to: file, db)
                }
            }
            // Another of them may say so.
            if isUnknown { opened.hasLostIdentity = try Self.identity(db) == SavedIdentity() }
            try opened.books.write(db)
            return try unfinished(db, directory)
        }
        for var file in unread where !opened.damagedFiles.contains(where: { $0.name == file.name }) {
            file.isUnread = true
            opened.damagedFiles.append(file)
        }
        return opened
    }

    /// A file that nobody knew: whom its events concern, what was dropped and how much it held, as far as it says so.
    static func takeUp(_ file: DamagedFile, _ source: QueueSalvage?, _ db: Database, _ books: inout QueueBooks) throws {
        var file = file
        if let source {
            try takeState(source, db)
            try adopt(source.drops ?? DropCounts(), db, &books)
            (file.depth, file.letters) = (source.depth, source.letters)
        }
        try remember(file, db)
    }

    /// Files that are known and still to be salvaged or told of, oldest first. One that somebody has deleted is told as lost.
    private static func unfinished(_ db: Database, _ directory: QueueDirectory) throws -> [DamagedFile] {
        try Row.fetchAll(db, sql: "SELECT * FROM damaged_files").compactMap { row in
            let file = try DamagedFile(row)
            if file.isSalvaged { try? directory.markSalvaged(file.name) }
            return file.isSalvaged && file.reportID == nil ? nil : file
        }.sorted { $0.number < $1.number }
    }

    /// Who uses the app, and whether its last session has ended.
    static func takeState(_ source: QueueSalvage, _ db: Database) throws {
        if let identity = source.identity, try Self.identity(db) == SavedIdentity() {
            // The install's own id stood for the anonymous one, and the install is another now.
            try save(
                SavedIdentity(anonymousID: identity.anonymousID ?? source.installID?.description, loginID: identity.loginID), db)
        }
        if let session = source.session, try openSession(db) == nil { try save(session, db) }
    }

    /// A file of somebody else's must not get our tables, and one of a later version is none of our business.
    ///
    /// Looked at by a connection that cannot change it, unless a transaction that was cut off has to be rolled back first: that nobody who
    /// reads the file can leave out (https://www.sqlite.org/rescode.html#readonly_rollback).
    private static func recognise(_ path: String, readonly: Bool = true) throws {
        var configuration = Configuration()
        configuration.readonly = readonly
        configuration.busyMode = DatabaseFile.busyMode
        do {
            let database = try DatabaseQueue(path: path, configuration: configuration)
            defer { try? database.close() }
            try database.read { try recognise($0) }
        } catch let error as DatabaseError where readonly && error.resultCode == .SQLITE_READONLY {
            try recognise(path, readonly: false)
        }
    }

    private static func recognise(_ db: Database) throws {
        guard try db.tableExists("grdb_migrations") else { throw DatabaseError(resultCode: .SQLITE_NOTADB) }
        let applied = try migrator.appliedIdentifiers(db)
        // A queue's file is whole from the first: one without its first migration has lost that since.
        guard let first = migrator.migrations.first, applied.contains(first) else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        // A later version has run every migration of this one; a name that is unknown while one of ours is missing has been damaged.
        let isWhole = applied.isSuperset(of: migrator.migrations)
        if try migrator.hasBeenSuperseded(db) { throw isWhole ? NewerSchema() : DatabaseError(resultCode: .SQLITE_CORRUPT) }
        guard try db.tableExists("books") && db.tableExists("queue") else {
            throw DatabaseError(resultCode: .SQLITE_CORRUPT)
        }
    }

    /// After an unclean end: every page, but not the rows against their indexes (https://www.sqlite.org/pragma.html#pragma_quick_check).
    /// A large file is not read whole; its damage is met at the first use.
    static func check(_ db: Database, largest: Int = 4_096) throws {
        guard let pages = try Int.fetchOne(db, sql: "PRAGMA page_count"), pages <= largest else { return }
        // It reports a read that failed like a page that is wrong; what fails three times is as good as damaged.
        for _ in 1...3 where try String.fetchOne(db, sql: "PRAGMA quick_check(1)") == "ok" { return }
        throw DatabaseError(resultCode: .SQLITE_CORRUPT)
    }

    static func open(
        _ directory: QueueDirectory, _ durability: Durability, _ newInstallID: EventID, _ room: QueueRoom
    ) throws -> Opened {
        if !FileManager.default.fileExists(atPath: directory.databasePath) {
            try make(directory, durability, newInstallID, room)
        }
        try QueueLog.check(directory.databasePath)
        // SQLite takes an empty file for a new database, and removes the log beside it.
        try QueueFileHeader(path: directory.databasePath)?.check()
        // Before anything looks into the file: who only reads leaves a log as well.
        let wasOpen = FileManager.default.fileExists(atPath: DatabaseFile.resolved(directory.databasePath) + "-wal")
        try recognise(directory.databasePath)
        let database = try openFile(directory.databasePath, durability, room)
        try migrator.migrate(database)
        if wasOpen { try database.read { try check($0) } }
        return try database.write { db in
            // A queue's file has them from the first.
            guard try Int.fetchOne(db, sql: "SELECT COUNT(*) FROM books") == 1 else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            let books = try QueueBooks(db)
            // From before its last event, as where the disk has lost the write of their page: sequences would be given again (I7).
            if let last = try lastWaitingSequence(db), last > books.lastSequence { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            try checkRowNumbers(db, books)
            try checkLetters(db, atMost: lettersCheckedAtOpening)
            return Opened(database: database, books: books, oldest: try oldestTime(db))
        }
    }

    /// The last event's, if it is this install's.
    static func lastWaitingSequence(_ db: Database) throws -> Int64? {
        guard let row = try Row.fetchOne(db, sql: "SELECT * FROM queue ORDER BY row DESC LIMIT 1"), let event = try? WaitingRow(row),
            event.install == nil
        else { return nil }
        return EventScanner.scan(event.payload[...]).sequence
    }

    /// Under another name until it has its tables and its books, and is in the mode that it stays in: a queue's file is whole or damaged,
    /// never half made. One whose log is left has been lost itself, and is there again to be set aside with it.
    private static func make(
        _ directory: QueueDirectory, _ durability: Durability, _ newInstallID: EventID, _ room: QueueRoom
    ) throws {
        let (path, new) = (directory.databasePath, directory.newDatabasePath)
        let isLost = FileManager.default.fileExists(atPath: path + "-wal")
        DatabaseFile.remove(new)
        // For its permissions, which the write-ahead log inherits; nobody else can make it, since this process holds the lock.
        _ = DatabaseFile.prepare(new)
        if !isLost {
            try makeFile(at: new)
            let database = try openFile(new, durability, room)
            try database.write { db in
                try db.execute(sql: "INSERT INTO books (id, install_id) VALUES (1, ?)", arguments: [Data(newInstallID.bytes)])
            }
            // Not left to the closing, which would not say that it failed: the log does not follow the file.
            try database.writeWithoutTransaction { _ = try $0.checkpoint(.truncate) }
            try database.close()
            // The SQLite of Apple's systems can leave an empty one, which would stay behind under the old name.
            DatabaseFile.removeLogs(new)
        }
        try FileManager.default.moveItem(atPath: new, toPath: path)
    }

    private static func openFile(_ path: String, _ durability: Durability, _ room: QueueRoom) throws -> DatabaseQueue {
        try DatabaseFile.open(
            path: path, synchronous: durability == .power ? .full : .normal, label: "hapax.queue", logPages: room.logPages)
    }

    /// A file with the queue's tables and nothing in them.
    static func makeFile(at path: String) throws {
        var configuration = Configuration()
        configuration.prepareDatabase { try $0.execute(sql: "PRAGMA auto_vacuum = INCREMENTAL") }
        let database = try DatabaseQueue(path: path, configuration: configuration)
        try migrator.migrate(database)
        try database.close()
    }

    static func installID(_ db: Database) throws -> EventID {
        guard let id = try Data.fetchOne(db, sql: "SELECT install_id FROM books").flatMap({ EventID(bytes: $0) }) else {
            throw DatabaseError(resultCode: .SQLITE_CORRUPT, message: "no install id")
        }
        return id
    }

    /// Opens the queue of a directory, or one in its spool if it is taken and that is wanted.
    package static func open(
        _ path: String, whenTaken: EventClient.TakenQueue, durability: Durability, quota: QueueQuota = .unlimited,
        clock: any ClientClock
    ) throws(QueueOpenError) -> EventQueue {
        var ids = UUIDv7Generator()
        let main = QueueDirectory(path: path)
        var directory = main
        // An adopter that sees a new spool before its maker has locked it takes it for abandoned: then another name is tried.
        var attemptsLeft = 5
        while true {
            do throws(QueueOpenError) {
                return try EventQueue(
                    directory: directory, durability: durability, newInstallID: ids.next(unixMilliseconds: clock.unixMilliseconds),
                    quota: quota, isSpool: directory != main)
            } catch {
                attemptsLeft -= 1
                let mayMove = directory != main || (error == .taken && whenTaken == .spool)
                guard mayMove, attemptsLeft > 0, main.hasRoomForSpool else { throw error }
                directory = main.spool(named: ids.next(unixMilliseconds: clock.unixMilliseconds).description)
            }
        }
    }
}
