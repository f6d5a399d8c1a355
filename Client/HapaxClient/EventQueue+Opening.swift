import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

extension EventQueue {
    /// A file that has been opened, migrated and read.
    struct Opened {
        var database: DatabaseQueue
        var installID: EventID
        var books: QueueBooks
    }

    static func open(
        _ directory: QueueDirectory, _ durability: Durability, _ newInstallID: EventID, _ room: QueueRoom
    ) throws -> Opened {
        let database = try DatabaseFile.open(
            path: directory.databasePath, synchronous: durability == .power ? .full : .normal, label: "hapax.queue", logPages: room.logPages
        )
        try migrator.migrate(database)
        return try database.write { db in
            try db.execute(
                sql: "INSERT INTO books (id, install_id) VALUES (1, ?) ON CONFLICT DO NOTHING", arguments: [Data(newInstallID.bytes)])
            return Opened(database: database, installID: try installID(db), books: try books(db))
        }
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
                guard mayMove, attemptsLeft > 0 else { throw error }
                directory = main.spool(named: ids.next(unixMilliseconds: clock.unixMilliseconds).description)
            }
        }
    }
}
