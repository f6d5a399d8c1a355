import HapaxModel

/// Installs' books in PostgreSQL. They are locked before events, in the order of their keys, by all groups alike, so that two groups cannot
/// deadlock; they are written in the message that begins COPY, which costs no round trip of its own.
///
/// Planning would cost more than the rest, so these statements keep their plans. Each is of a form that has only one plan, whatever the table was
/// like when it was made: it looks up one install after the other.
enum PostgresBooks {
    static let open = "hapax_books"
    static let add = "hapax_installs"
    static let keep = "hapax_keep"
    static let planOnce = "hapax_plan_once"
    static let planAnew = "hapax_plan_anew"

    private static let columns = InstallBook.columns.map { column in
        column == "missing_since" ? "(extract(epoch FROM i.missing_since) * 1000)::int8::text" : "i.\(column)::text"
    }

    /// The first two take the installs' projects and ids.
    static let statements = [
        (
            name: open,
            sql: """
            SELECT n.install_id, n.project_id, (extract(epoch FROM now()) * 1000)::int8::text, i.*
            FROM unnest($1::int4[], $2::uuid[]) AS n (project_id, install_id) CROSS JOIN LATERAL (
              SELECT \(columns.joined(separator: ", ")) FROM installs AS i
              WHERE i.project_id = n.project_id AND i.install_id = n.install_id LIMIT 1 FOR UPDATE
            ) AS i
            """
        ),
        (
            name: add,
            sql: """
            INSERT INTO installs (project_id, install_id, created, acknowledged, word, held, gone, refused)
            SELECT project_id, install_id, 0, 0, 0, '[]', '[]', '{}' FROM unnest($1::int4[], $2::uuid[]) AS n (project_id, install_id)
            ON CONFLICT DO NOTHING
            """
        ),
        (
            name: keep,
            sql: """
            INSERT INTO installs AS i (project_id, install_id, \(all.joined(separator: ", ")))
            SELECT project_id, install_id, \(lists.map { "convert_from(decode(\($0), 'hex'), 'UTF8')::jsonb, " }.joined())\
            \(numbers.map { "\($0), " }.joined())stored::int8multirange, folded, is_unknown, to_timestamp(missing_since / 1000.0)
            FROM unnest($1::int4[], $2::uuid[], \(all.enumerated().map { "$\($0 + 3)::\(type($1))[]" }.joined(separator: ", ")))
              AS n (project_id, install_id, \(all.joined(separator: ", ")))
            ON CONFLICT (project_id, install_id) DO UPDATE SET
              \(words.map { "\($0) = CASE WHEN excluded.word > i.word THEN excluded.\($0) ELSE i.\($0) END, " }.joined())\
              fates = CASE WHEN excluded.fates = 'null' THEN i.fates ELSE excluded.fates END,
              \(all.dropFirst(lists.count).map { "\($0) = excluded.\($0), " }.joined())heard_at = now()
            """
        ),
        (name: planOnce, sql: "SET LOCAL plan_cache_mode = force_generic_plan"),
        (name: planAnew, sql: "SET LOCAL plan_cache_mode = force_custom_plan"),
    ]

    /// What the latest word says.
    private static let words = ["held", "gone", "refused"]
    private static let lists = words + ["fates"]
    private static let numbers = [
        "created", "acknowledged", "word", "begins", "repeated", "events_given", "events_stored", "events_duplicates", "events_refused",
        "events_discarded",
        "events_waiting", "events_missing",
    ]
    private static let all = lists + numbers + ["stored", "folded", "is_unknown", "missing_since"]

    private static func type(_ column: String) -> String {
        lists.contains(column) || ["stored", "folded"].contains(column) ? "text" : column == "is_unknown" ? "bool" : "int8"
    }

    /// Locks the books of some installs, and returns them.
    static func opening(_ reports: [InstallReport]) -> PostgresConnection.Statements {
        reports.isEmpty ? [] : [(planOnce, []), (open, parameters(reports)), (planAnew, [])]
    }

    static func adding(_ reports: [InstallReport]) -> PostgresConnection.Statements { [(add, parameters(reports))] + opening(reports) }

    /// Of the answers to statements that end with ``opening(_:)``, that with the books.
    static func opened(_ answers: [PostgresRows]) -> PostgresRows? { answers.dropLast().last }

    private static func parameters(_ reports: [InstallReport]) -> [[UInt8]] {
        [
            PostgresArray.bytes(reports, oid: 23) { $1.appendField($0.key.projectID) },
            PostgresArray.bytes(reports, oid: 2950) { $1.appendField($0.key.id) },
        ]
    }

    /// Books that a transaction has locked.
    struct Locked {
        fileprivate var books: [EventKey: InstallBook] = [:]
        fileprivate var now: Int64 = 0

        init() {}

        init(_ rows: PostgresRows) {
            for row in 0..<rows.count {
                func text(_ column: Int) -> String? { rows.bytes(row, column).map { String(decoding: $0, as: UTF8.self) } }
                let texts = (3..<3 + InstallBook.columns.count).map(text)
                guard let key = rows.key(row) else { continue }
                books[key] = InstallBook(texts[...]) ?? .unreadable
                now = text(2).flatMap { Int64($0) } ?? now
            }
        }

        var count: Int { books.count }

        /// Statements that write what has changed, followed by `; `, or nothing. No text of a sender stands in them: JSON is hexadecimal.
        func update(_ entries: [InstallBook.Entry]) -> String {
            var columns: [[String]] = []
            for entry in entries {
                let report = entry.report
                guard var book = books[report.key] else { continue }
                let fates = book.fates
                guard book.add(entry, now: now) else { continue }
                let figures = book.figures
                // What has not changed is not sent.
                let lists = [report.held, report.removed, report.refused, book.fates == fates ? Array("null".utf8) : book.encodedFates]
                let numbers = [
                    book.created, book.acknowledged, book.reportVersion, book.begins, book.repeated, figures.given, figures.stored,
                    figures.duplicates, figures.refused,
                    figures.discarded, figures.waiting, figures.missing,
                ]
                let row =
                    ["\(report.key.projectID)", "\(report.key.id)"] + lists.map(hexadecimal) + numbers.map { "\($0)" }
                    + ["\"\(book.stored)\"", "\"\(book.encodedFolded)\"", "\(book.isUnknown)", book.missingSince.map { "\($0)" } ?? "NULL"]
                if columns.isEmpty {
                    columns = row.map { [$0] }
                } else {
                    for (index, value) in row.enumerated() { columns[index].append(value) }
                }
            }
            if columns.isEmpty { return "" }
            let arrays = columns.map { "'{\($0.joined(separator: ","))}'" }.joined(separator: ", ")
            return "SET LOCAL plan_cache_mode = force_generic_plan; EXECUTE \(keep)(\(arrays)); "
        }

        private func hexadecimal(_ bytes: [UInt8]) -> String {
            func digit(_ value: UInt8) -> UInt8 { value + (value < 10 ? UInt8(ascii: "0") : UInt8(ascii: "a") - 10) }
            return String(unsafeUninitializedCapacity: 2 * bytes.count) { text in
                for (index, byte) in bytes.enumerated() {
                    text[2 * index] = digit(byte >> 4)
                    text[2 * index + 1] = digit(byte & 15)
                }
                return 2 * bytes.count
            }
        }
    }
}
