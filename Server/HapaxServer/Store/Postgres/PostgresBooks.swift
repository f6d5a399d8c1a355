import HapaxModel

/// Installs' books in PostgreSQL. They are locked before events, in the order of their keys, by all groups alike, so that two groups cannot
/// deadlock; they are written in the message that begins COPY, which costs no round trip of its own.
///
/// Planning would cost more than the rest: both statements have plans for all times, since `installs` has no partitions.
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
            SELECT i.install_id, i.project_id, (extract(epoch FROM now()) * 1000)::int8::text, \(columns.joined(separator: ", "))
            FROM unnest($1::int4[], $2::uuid[]) AS n (project_id, install_id) JOIN installs i USING (project_id, install_id)
            ORDER BY i.install_id, i.project_id FOR UPDATE OF i
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
            UPDATE installs AS i SET \(lists.map { "\($0) = coalesce(convert_from(decode(n.\($0), 'hex'), 'UTF8')::jsonb, i.\($0)), " }.joined())\
            \(numbers.map { "\($0) = n.\($0), " }.joined())stored = n.stored::int8multirange, is_unknown = n.is_unknown,
              missing_since = to_timestamp(n.missing_since / 1000.0), heard_at = now()
            FROM unnest($1::int4[], $2::uuid[], \(lists.indices.map { "$\($0 + 3)::text[]" }.joined(separator: ", ")),
              \(numbers.indices.map { "$\($0 + 3 + lists.count)::int8[]" }.joined(separator: ", ")),
              $\(lists.count + numbers.count + 3)::text[], $\(lists.count + numbers.count + 4)::bool[], $\(lists.count + numbers.count + 5)::int8[])
              AS n (project_id, install_id, \((lists + numbers).joined(separator: ", ")), stored, is_unknown, missing_since)
            WHERE i.project_id = n.project_id AND i.install_id = n.install_id
            """
        ),
        (name: planOnce, sql: "SET LOCAL plan_cache_mode = force_generic_plan"),
        (name: planAnew, sql: "SET LOCAL plan_cache_mode = force_custom_plan"),
    ]

    private static let lists = ["held", "gone", "refused", "fates"]
    private static let numbers = [
        "created", "acknowledged", "word", "begins", "repeated", "events_given", "events_stored", "events_refused", "events_discarded",
        "events_waiting", "events_missing",
    ]

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

        /// Statements that write what has changed, with `; ` behind them, or nothing. No text of a sender stands in them: JSON is hexadecimal.
        func update(_ entries: [InstallBook.Entry]) -> String {
            var columns: [[String]] = []
            for entry in entries {
                let report = entry.report
                guard var book = books[report.key] else { continue }
                let (word, fates) = (book.word, book.fates)
                guard book.add(entry, now: now) else { continue }
                let figures = book.figures
                let isLater = book.word > word
                // What has not changed is not sent.
                let lists = [
                    isLater ? report.held : nil, isLater ? report.gone : nil, isLater ? report.refused : nil,
                    book.fates == fates ? nil : book.encodedFates,
                ]
                let numbers = [
                    book.created, book.acknowledged, book.word, book.begins, book.repeated, figures.given, figures.stored, figures.refused,
                    figures.discarded, figures.waiting, figures.missing,
                ]
                let row =
                    ["\(report.key.projectID)", "\(report.key.id)"] + lists.map { $0.map(hexadecimal) ?? "NULL" } + numbers.map { "\($0)" }
                    + ["\"\(book.stored)\"", "\(book.isUnknown)", book.missingSince.map { "\($0)" } ?? "NULL"]
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
            let digits = Array("0123456789abcdef".utf8)
            return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
        }
    }
}
