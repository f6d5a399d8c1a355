import HapaxModel

extension Dialect {
    package static let sqlite = Dialect(
        least: "min",
        now: { "\(milliseconds: $0)" },
        milliseconds: { $0 },
        uuidText: { id in
            // Of NULL `hex` makes a text.
            let parts = [(1, 8), (9, 4), (13, 4), (17, 4), (21, 12)].map { "lower(substr(hex(\(id)), \($0.0), \($0.1)))" as StoreSQL }
            return "CASE WHEN \(id) IS NOT NULL THEN \(parts.dropFirst().reduce(parts[0]) { "\($0) || '-' || \($1)" }) END"
        },
        uuid: { StoreSQL(stringLiteral: "x'\($0.description.filter { $0 != "-" })'") },
        bucket: "hapax_bucket(event_id)",
        monthOfBucket: "strftime('%Y-%m', hapax_bucket(event_id) * 86400, 'unixepoch')",
        isAhead: "time - received_at > 86400000",
        sinceMade: { _ in "" },
        value: { "hapax_value(properties, \($0))" },
        valueOf: { "\($0)" },
        textOfValue: { $0 },
        anonymousID: """
            CASE WHEN json_type(properties, '$."$anonymous_id"') = 'text' THEN json_extract(properties, '$."$anonymous_id"') END
            """,
        duration: "hapax_session_ms(properties)",
        rowKey: "row, NULL",
        rows: { "row IN (SELECT value FROM json_each(\("[\($0.joined(separator: ","))]")))" },
        sorted: { $0 },
        isRemovable: "row < (SELECT max(row) FROM events)",
        lock: "",
        ranges: { "hapax_ranges(\($0), \($1))" },
        union: { "hapax_union(\($0), \($1))" },
        minus: { "hapax_minus(\($0), \($1))" },
        text: { $0 })
}
