import Foundation
import GRDB
import HapaxModel

/// How far a damaged file has been read, as it stands in the file that took over: with each chunk of rows the place that was reached.
struct Recovery: Hashable, Sendable {
    /// Of the damaged file.
    var name: String
    var install: EventID
    /// How much it held, if it says so.
    var waiting: Int64?
    var deadLetters: Int64?
    /// No event below was waiting, as far as that is known; then what is not recovered from here on is reported as lost.
    var lowest: Int64?
    /// No row has a higher number.
    var highest: Int64
    /// The dead letters come after the events.
    var isOfDeadLetters = false
    var reached: Int64 = 0
    var recovered: Int64 = 0
    var recoveredDeadLetters: Int64 = 0
    var deadLettered: Int64 = 0

    /// Where nobody knows how many rows there are.
    static let anyRow = Int64(1) << 40

    /// - Parameters:
    ///   - file: nil if nothing of it can be read.
    ///   - install: Whose file it was, if it does not say so itself.
    init(name: String, _ file: DamagedFile?, of install: EventID) throws {
        let counters = try file?.counters
        (self.name, self.install) = (name, counters?.installID ?? install)
        waiting = counters?.waiting
        deadLetters = counters?.deadLetters
        lowest = counters.map { $0.acknowledged + 1 }
        highest = try counters?.created ?? file?.highestSequence ?? Self.anyRow
    }

    var damage: QueueDamage {
        var damage = QueueDamage(file: name)
        (damage.recovered, damage.recoveredDeadLetters) = (Int(recovered), Int(recoveredDeadLetters))
        damage.deadLettered = Int(deadLettered)
        damage.lost = waiting.map { Int(max($0 - recovered - deadLettered, 0)) }
        damage.lostDeadLetters = deadLetters.map { Int(max($0 - recoveredDeadLetters, 0)) }
        return damage
    }

    // MARK: - On disk

    /// The oldest that is not done.
    static func pending(_ db: Database) throws -> Recovery? { try all(db).first }

    /// Those that are not done, oldest first.
    static func all(_ db: Database) throws -> [Recovery] {
        try Row.fetchAll(db, sql: "SELECT * FROM recoveries ORDER BY rowid").map { try Recovery($0) }
    }

    private init(_ row: Row) throws {
        guard let install = EventID(bytes: try row.value("install_id") as Data) else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        self.install = install
        name = try row.value("name")
        (waiting, deadLetters, lowest) = (try row.optional("waiting"), try row.optional("letters"), try row.optional("lowest"))
        (highest, isOfDeadLetters, reached) = (try row.value("highest"), try row.value("is_of_letters"), try row.value("reached"))
        (recovered, recoveredDeadLetters) = (try row.value("recovered"), try row.value("recovered_letters"))
        deadLettered = try row.value("dead_lettered")
    }

    func insert(_ db: Database) throws {
        try db.execute(
            sql: """
                INSERT INTO recoveries (name, install_id, waiting, letters, lowest, highest) VALUES (?, ?, ?, ?, ?, ?)
                ON CONFLICT DO NOTHING
                """,
            arguments: [name, Data(install.bytes), waiting, deadLetters, lowest, highest])
        try update(db)
    }

    func update(_ db: Database) throws {
        try db.execute(
            sql: """
                UPDATE recoveries SET is_of_letters = ?, reached = ?, recovered = ?, recovered_letters = ?, dead_lettered = ? WHERE name = ?
                """,
            arguments: [isOfDeadLetters, reached, recovered, recoveredDeadLetters, deadLettered, name])
    }

    func remove(_ db: Database) throws {
        try db.execute(sql: "DELETE FROM recoveries WHERE name = ?", arguments: [name])
    }
}
