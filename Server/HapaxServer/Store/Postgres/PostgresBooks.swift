import HapaxModel

/// Installs' books in PostgreSQL. They are locked before events, in the order of their keys, by all groups alike, so that two groups cannot
/// deadlock; they are written in the message that begins COPY, which costs no round trip of its own.
enum PostgresBooks {
    static let open = "hapax_books"
    static let add = "hapax_installs"

    private static let columns = InstallBook.columns.map { column in
        column == "missing_since" ? "(extract(epoch FROM i.missing_since) * 1000)::int8::text" : "i.\(column)::text"
    }

    /// Both take the installs' projects and ids.
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
    ]

    static func parameters(_ reports: [InstallReport]) -> [[UInt8]] {
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
                guard let key = rows.key(row), let book = InstallBook(texts[...]) else { continue }
                books[key] = book
                now = text(2).flatMap { Int64($0) } ?? now
            }
        }

        var count: Int { books.count }

        /// A statement that writes what has changed, with `; ` behind it, or nothing. No text of a sender stands in it: JSON is hexadecimal.
        func update(_ entries: [InstallBook.Entry]) -> String {
            let rows = entries.compactMap { entry -> String? in
                let report = entry.report
                guard var book = books[report.key] else { return nil }
                let (word, fates) = (book.word, book.fates)
                guard book.add(entry, now: now) else { return nil }
                let figures = book.figures
                let isLater = book.word > word
                // What has not changed is not sent.
                let lists = [
                    isLater ? report.held : nil, isLater ? report.gone : nil, isLater ? report.refused : nil,
                    book.fates == fates ? nil : book.encodedFates,
                ]
                let values =
                    ["\(report.key.projectID)", "'\(report.key.id)'::uuid"] + lists.map { $0.map(json) ?? "NULL::jsonb" }
                    + [
                        book.created, book.acknowledged, book.word, book.begins, book.repeated, figures.given, figures.stored,
                        figures.refused,
                        figures.discarded, figures.waiting, figures.missing,
                    ].map { "\($0)::int8" }
                    + [
                        "'\(book.stored)'::int8multirange", "\(book.isUnknown)",
                        book.missingSince.map { "'\(Timestamp(clampingUnixMilliseconds: $0))'::timestamptz" } ?? "NULL::timestamptz",
                    ]
                return "(\(values.joined(separator: ",")))"
            }
            return rows.isEmpty ? "" : "\(Self.prefix)\(rows.joined(separator: ","))\(Self.suffix); "
        }

        private func json(_ bytes: [UInt8]) -> String {
            switch bytes {
            case Array("[]".utf8): return "'[]'::jsonb"
            case Array("{}".utf8): return "'{}'::jsonb"
            default:
                let digits = Array("0123456789abcdef".utf8)
                let hexadecimal = bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }
                return "convert_from('\\x\(String(decoding: hexadecimal, as: UTF8.self))'::bytea, 'UTF8')::jsonb"
            }
        }

        private static let lists = ["held", "gone", "refused", "fates"]
        private static let others = [
            "created", "acknowledged", "word", "begins", "repeated", "events_given", "events_stored", "events_refused", "events_discarded",
            "events_waiting", "events_missing", "stored", "is_unknown", "missing_since",
        ]
        private static let prefix = """
            UPDATE installs AS i SET \(lists.map { "\($0) = coalesce(n.\($0), i.\($0)), " }.joined())\
            \(others.map { "\($0) = n.\($0), " }.joined())heard_at = now() FROM (VALUES 
            """
        private static let suffix = """
            ) AS n (project_id, install_id, \((lists + others).joined(separator: ", ")))
            WHERE i.project_id = n.project_id AND i.install_id = n.install_id
            """
    }
}
