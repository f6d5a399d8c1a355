import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

extension QueueFile {
    /// Takes the first of the destination's files that nobody owns, or begins the next one. A file of a newer version or of another user is in
    /// nobody's way.
    ///
    /// - Parameters:
    ///   - former: Other names of the destination, see ``Endpoint/destinations``.
    ///   - install: Names a new file's install.
    package static func first(
        of destination: EventID, or former: Set<EventID> = [], in directory: QueueDirectory, install: EventID, durability: Durability,
        quota: QueueQuota = .unlimited, keepsDamagedFiles: Bool = false
    ) throws(QueueOpenError) -> QueueFile {
        let destinations = former.union([destination])
        let numbers: [Int]
        do throws(StorageFailure) {
            try directory.make()
            numbers = try directory.numbers()
        } catch { throw .unusable(error) }
        for number in numbers where FileClaim.note(of: number, in: directory).map({ destinations.contains($0.destination) }) ?? true {
            let claim: FileClaim
            do throws(QueueOpenError) {
                claim = try FileClaim(number, in: directory, of: destinations)
            } catch {
                guard error == .taken || error.isOfOneFile else { throw error }
                continue
            }
            do throws(QueueOpenError) {
                return try QueueFile(claim, durability: durability, quota: quota, keepsDamagedFiles: keepsDamagedFiles)
            } catch {
                // Where the disk is to blame, a new file would fail as well.
                guard error.isOfOneFile else { throw error }
            }
        }
        let claim = try FileClaim.next(after: Set(numbers), of: destination, in: directory, install: install)
        return try QueueFile(claim, durability: durability, quota: quota, keepsDamagedFiles: keepsDamagedFiles)
    }

    /// A file that has been opened and read.
    struct Opened {
        var database: DatabaseQueue
        var counters: QueueCounters
        var oldest: Int64?
        var isRecovering = false
        var damage: QueueDamage?
    }

    /// Opens the file, or sets it aside and begins a new one if it is damaged or something else (D17).
    ///
    /// - Parameter former: Whose file it was, if the lock file may say already whose the next one is.
    static func openOrReplace(
        _ claim: FileClaim, _ durability: Durability, _ room: QueueRoom, former: EventID? = nil
    ) throws -> Opened {
        let former = former ?? claim.note.install
        try claim.directory.finishSettingAside(claim.number, keepsLog: true)
        if try claim.directory.isEmptied(claim.number, isNew: claim.note.isNew) {
            return try replace(claim, durability, room, former: former)
        }
        do {
            return try open(claim, durability, room, former: former)
        } catch  where error.isDamageAtOpening {
            return try replace(claim, durability, room, former: former)
        }
    }

    /// Sets the file aside and begins a new one, a new install, which remembers what is to be recovered.
    static func replace(_ claim: FileClaim, _ durability: Durability, _ room: QueueRoom, former: EventID) throws -> Opened {
        try claim.directory.setAside(claim.number)
        return try open(claim, durability, room, former: former)
    }

    private static func open(_ claim: FileClaim, _ durability: Durability, _ room: QueueRoom, former: EventID) throws -> Opened {
        let path = claim.directory.databasePath(claim.number)
        try claim.directory.finishSettingAside(claim.number)
        // In the place of a file that was set aside, or that somebody has deleted, it is another install: no sequence comes again (I7). Before
        // there is an empty file, which is damage otherwise.
        if try FileStatus.size(of: path) == nil, !claim.note.isNew { try claim.beginAnew() }
        // SQLite does not say that this is why.
        if access(path, R_OK | W_OK) != 0, errno == EACCES { throw POSIXError(.EACCES) }
        // For its permissions, which the write-ahead log inherits. Nobody has it open, so closing it here loses no lock of SQLite's.
        _ = DatabaseFile.prepare(path)
        try refuseOthers(path)
        let database = try DatabaseFile.open(
            path: path, synchronous: durability == .power ? .full : .normal, label: "hapax.queue", logPages: room.logPages)
        return try database.write { db in
            if try !QueueSchema.recognise(db) { try make(db, claim, former: former) }
            try QueueSchema.upgrade(db)
            let counters = try QueueCounters(db)
            let oldest = try Int64.fetchOne(db, sql: "SELECT time FROM events ORDER BY sequence LIMIT 1")
            // From before its last event: sequences would be given again (I7).
            guard try Int64.fetchOne(db, sql: "SELECT max(sequence) FROM events") ?? 0 <= counters.created else {
                throw DatabaseError(resultCode: .SQLITE_CORRUPT)
            }
            let recovery = try Recovery.pending(db)
            return Opened(
                database: database, counters: counters, oldest: oldest, isRecovering: recovery != nil, damage: recovery?.damage)
        }
    }

    private static func make(_ db: Database, _ claim: FileClaim, former: EventID) throws {
        if !claim.note.isNew { try claim.beginAnew() }
        try QueueSchema.make(db, install: claim.note.install)
        if let name = try claim.directory.filesSetAside(claim.number).last {
            let damaged = try DamagedFile.unlessUnreadable(claim.directory.path + "/" + name)
            for unfinished in try damaged?.recoveries ?? [] { try unfinished.insert(db) }
            try Recovery(name: name, damaged, of: former).insert(db)
        }
    }

    /// A file of somebody else's, or of a later version, is looked at by a connection that cannot change it.
    private static func refuseOthers(_ path: String) throws {
        guard let size = try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int64, size > 0 else { return }
        var configuration = Configuration()
        configuration.readonly = true
        configuration.busyMode = DatabaseFile.busyMode
        do {
            let database = try DatabaseQueue(path: path, configuration: configuration)
            defer { try? database.close() }
            _ = try database.read { try QueueSchema.recognise($0) }
        } catch let error as DatabaseError where error.resultCode == .SQLITE_READONLY {
            // A file whose making was cut off has to be rolled back first (https://www.sqlite.org/rescode.html#readonly_rollback).
        }
    }
}
