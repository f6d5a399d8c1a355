import Foundation
import GRDB
import HapaxModel

/// Reads what can still be read from a damaged queue file, which it does not change.
struct QueueSalvage {
    private let database: DatabaseQueue
    /// The install the file belonged to; nil if that cannot be read.
    let installID: EventID?
    /// How many events waited, by the file's own books.
    let depth: Int64?

    /// Stretches of row numbers that are tried in a row without finding anything, before the rest is given up. A damaged page costs about
    /// two for each row it held.
    private static let maximumVainStretches = 4_096

    /// - Returns: nil if it is no database any more.
    init?(path: String) {
        var configuration = Configuration()
        configuration.readonly = true
        guard let database = try? DatabaseQueue(path: path, configuration: configuration) else { return nil }
        self.database = database
        let books = try? database.unsafeRead { try Row.fetchOne($0, sql: "SELECT install_id, depth FROM books") }
        installID = (try? books?.optional("install_id") as Data?).flatMap { EventID(bytes: $0) }
        depth = (try? books?.optional("depth") as Int64?) ?? nil
    }

    func close() { try? database.close() }

    /// Whom events concern and which session was open, as far as that can be read.
    var identity: EventQueue.SavedIdentity? { try? database.unsafeRead { try EventQueue.identity($0) } }
    var session: EventQueue.OpenSession? { (try? database.unsafeRead { try EventQueue.openSession($0) }) ?? nil }

    /// Files that were set aside before this one, and from which nothing is left to be taken.
    var salvagedFiles: Set<String> {
        (try? database.unsafeRead { try String.fetchSet($0, sql: "SELECT name FROM damaged_files WHERE is_salvaged = 1") }) ?? []
    }

    /// Every row of a table that can be read, once, most of them in order.
    ///
    /// - Throws: What `body` throws.
    func rows(of table: String, _ body: (Row) throws -> Void) throws {
        // Without a transaction: its end would fail once a page could not be read.
        try database.unsafeRead { db in
            var stretches: [ClosedRange<Int64>] = [0...(.max - 1)]
            var (tried, vain) = (0, 0)
            while tried < stretches.count, vain < Self.maximumVainStretches {
                let stretch = stretches[tried]
                tried += 1
                vain += 1
                guard let last = try read(db, table, stretch, "ASC", body), last < stretch.upperBound else { continue }
                // From the other end to the damage; then each half of what lies between, unless that is one row and has had its turn.
                guard let first = try read(db, table, last + 1...stretch.upperBound, "DESC", body), first > last + 1 else { continue }
                let rest = last + 1...first - 1
                if rest != stretch { vain = 0 }
                guard rest.lowerBound < rest.upperBound || rest != stretch else { continue }
                let middle = rest.lowerBound + (rest.upperBound - rest.lowerBound) / 2
                stretches.append(rest.lowerBound...middle)
                if middle < rest.upperBound { stretches.append(middle + 1...rest.upperBound) }
            }
        }
    }

    /// - Returns: The row next to the damage, or the stretch's end if none was met before it; nil if the whole stretch has been read.
    private func read(
        _ db: Database, _ table: String, _ stretch: ClosedRange<Int64>, _ order: String, _ body: (Row) throws -> Void
    ) throws -> Int64? {
        var met: Int64?
        do {
            let rows = try Row.fetchCursor(
                db, sql: "SELECT * FROM \(table) WHERE row BETWEEN ? AND ? ORDER BY row \(order)",
                arguments: [stretch.lowerBound, stretch.upperBound])
            while let row = try rows.next() {
                met = row[0]
                do { try body(row) } catch { throw SalvageFailure(cause: error) }
            }
            return nil
        } catch let failure as SalvageFailure {
            throw failure
        } catch {
            return met ?? (order == "ASC" ? stretch.lowerBound - 1 : stretch.upperBound + 1)
        }
    }
}

/// The new queue could not take what was salvaged, which is not the damage that is being worked around.
struct SalvageFailure: Error {
    var cause: any Error
}
