import HapaxModel

extension Dialect {
    package static let postgres = Dialect(
        least: "least",
        now: { _ in "now()" },
        milliseconds: { "(extract(epoch FROM \($0)) * 1000)::int8" },
        uuidText: { "\($0)::text" },
        uuid: { "CAST(\($0.description) AS uuid)" },
        bucket: "bucket",
        monthOfBucket: "to_char(date '1970-01-01' + bucket, 'YYYY-MM')",
        isAhead: "time - received_at > interval '86400 seconds'",
        sinceMade: { "AND received_at >= (SELECT created_at FROM projects WHERE project_id = \($0))" },
        // Step by step: the operator for paths takes a number for a place in an array.
        value: { name in
            let steps = name.split(separator: ".", omittingEmptySubsequences: false)
            let path = steps.dropFirst().reduce("properties -> \(String(steps[0]))::text" as StoreSQL) { "\($0) -> \(String($1))::text" }
            return steps.count < 2 ? "(\(path))" : "coalesce(properties -> \(name)::text, \(path))"
        },
        valueOf: { "\($0)::jsonb" },
        textOfValue: {
            "CASE WHEN jsonb_typeof(\($0)) = 'number' THEN trim_scale(\($0)::numeric)::text ELSE \($0)::text END COLLATE \"C\""
        },
        anonymousID: "CASE WHEN jsonb_typeof(properties -> '$anonymous_id') = 'string' THEN properties ->> '$anonymous_id' END",
        // `numeric` keeps the number exactly as it was sent. The floor of half a millisecond more rounds half up. PostgreSQL sums an `int4`
        // in 8 bytes a user, and an `int8` in ten times as many.
        duration: """
            CASE WHEN jsonb_typeof(properties -> '$event_duration') = 'number'
              AND (properties -> '$event_duration')::numeric BETWEEN 0 AND 86400
            THEN floor((properties -> '$event_duration')::numeric * 1000 + 0.5)::int4 END
            """,
        rowKey: "event_id || ' ' || bucket, tableoid::regclass",
        rows: { keys in
            let parts = keys.map { $0.split(separator: " ") }
            let buckets = parts.compactMap { $0.last.flatMap { Int32($0) } }
            let ids = "{\(parts.compactMap(\.first).joined(separator: ","))}"
            // The span of buckets leaves out the months that hold none of them.
            return "event_id = ANY (\(ids)) AND bucket >= \(buckets.min() ?? 0) AND bucket <= \(buckets.max() ?? 0)"
        },
        sorted: { keys in
            keys.map { (bucket: $0.split(separator: " ").last.flatMap { Int32($0) } ?? 0, key: $0) }
                .sorted { ($0.bucket, $0.key) < ($1.bucket, $1.key) }.map(\.key)
        },
        isRemovable: "true",
        lock: " FOR UPDATE",
        ranges: { "range_agg(int8range(\($0), \($1), '[]'))" },
        // Where there are too many, neighbours are joined.
        union: { left, right in
            """
            (SELECT CASE WHEN (SELECT count(*) FROM unnest(u)) <= \(StoredNumbers.maximumRanges) THEN u ELSE (
              SELECT range_agg(int8range(first, last)) FROM (
                SELECT min(lower(r)) AS first, max(upper(r)) AS last FROM (
                  SELECT r, ntile(\(StoredNumbers.maximumRanges / 2)) OVER (ORDER BY r) AS part FROM unnest(u) AS r
                ) AS parts GROUP BY part
              ) AS joined) END FROM (SELECT \(left) + \(right) AS u) AS total)
            """
        },
        minus: { "(\($0) - \($1))" },
        text: { "\($0)::text" })
}
