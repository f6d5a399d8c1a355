import Foundation
import GRDB
import HapaxModel

/// Installs' books in the embedded store, the table `installs`; ``InstallBook`` says what its columns mean.
enum SQLiteBooks {
    private static let insert = """
        INSERT INTO installs (project_id, install_id, created, acknowledged, word, held, gone, refused, heard_at)
        VALUES (?, ?, 0, 0, 0, '[]', '[]', '{}', 0) ON CONFLICT DO NOTHING
        """

    private static let select =
        "SELECT \(InstallBook.columns.joined(separator: ", ")) FROM installs WHERE project_id = ? AND install_id = ?"

    private static let update = """
        UPDATE installs SET held = coalesce(?, held), gone = coalesce(?, gone), refused = coalesce(?, refused), created = ?, acknowledged = ?,
          word = ?, begins = ?, stored = ?, fates = ?, folded = ?, repeated = ?, is_unknown = ?, missing_since = ?, events_given = ?, events_stored = ?, events_duplicates = ?,
          events_refused = ?, events_discarded = ?, events_waiting = ?, events_missing = ?, heard_at = ?
        WHERE project_id = ? AND install_id = ?
        """

    /// Adds to an install's book what a commit has brought, in the commit's transaction.
    static func keep(_ entry: InstallBook.Entry, heardAt: Int64, in db: Database) throws {
        let (report, select) = (entry.report, try db.cachedStatement(sql: Self.select))
        let key: [any DatabaseValueConvertible] = [report.key.projectID, Data(report.key.id.bytes)]
        var known = try db.texts(select, StatementArguments(key))
        if known.isEmpty {
            try db.cachedStatement(sql: insert).execute(arguments: StatementArguments(key))
            known = try db.texts(select, StatementArguments(key))
        }
        guard var book = known.first.flatMap({ InstallBook($0[...]) }) else {
            throw StoreError.unavailable("an install's book cannot be read")
        }
        let before = book.reportVersion
        guard book.add(entry, now: heardAt) else { return }
        func text(_ bytes: [UInt8]) -> String? { book.reportVersion > before ? String(decoding: bytes, as: UTF8.self) : nil }
        let figures = book.figures
        let values: [(any DatabaseValueConvertible)?] = [
            text(report.held), text(report.removed), text(report.refused), book.created, book.acknowledged, book.reportVersion, book.begins,
            book.stored.description, String(decoding: book.encodedFates, as: UTF8.self), book.encodedFolded, book.repeated, book.isUnknown,
            book.missingSince,
            figures.given, figures.stored, figures.duplicates, figures.refused, figures.discarded, figures.waiting, figures.missing,
            heardAt,
        ]
        try db.cachedStatement(sql: update).execute(arguments: StatementArguments(values + key))
    }
}
