import HapaxModel

/// Compares events with what is stored under their ids, by value and in the database: read back, `1e308` would be 309 digits.
enum PostgresComparison {
    /// - Returns: Whether each is the same; nil where nothing is stored under the id.
    /// - Throws: ``PostgresError``, also when the time is up.
    static func run(
        _ records: [EventRecord], _ connection: PostgresConnection, until end: ContinuousClock.Instant
    ) throws(PostgresError) -> [Bool?] {
        let group = StoreGroup(records: records)
        var same = [Bool?](repeating: nil, count: records.count)
        for part in ProbeParts(records.map(\.key)).parts {
            let places = records.indices.filter { part.buckets.contains(records[$0].key.id.bucket) }
            for start in stride(from: 0, to: places.count, by: eventsAtOnce) {
                try compare(places[start..<min(start + eventsAtOnce, places.count)], of: group, part.buckets, connection, end, &same)
            }
        }
        return same
    }

    /// Events in one statement; the largest events take it some tens of milliseconds.
    private static let eventsAtOnce = 100

    private static func compare(
        _ places: ArraySlice<Int>, of group: StoreGroup, _ buckets: ClosedRange<Int32>, _ connection: PostgresConnection,
        _ end: ContinuousClock.Instant, _ same: inout [Bool?]
    ) throws(PostgresError) {
        guard ContinuousClock.now < end else { throw PostgresError(kind: .statement, sqlState: "57014", summary: "the time was up") }
        let columns: [PostgresEventColumn] = [.eventID, .projectID, .event, .distinctID, .properties]
        let parameters =
            [PostgresArray.bytes(Array(places), oid: 23) { $1.appendField(Int32($0)) }]
            + columns.map { column in column.array(places.map { group.records[$0] }, in: group.batches) }
            + [buckets.lowerBound, buckets.upperBound].map { withUnsafeBytes(of: $0.bigEndian) { Array($0) } }
        do throws(PostgresError) {
            try connection.execute("SAVEPOINT hapax_comparison")
            let rows = try connection.query(sql, binary: parameters)
            for row in 0..<rows.count {
                guard let place = rows.bytes(row, 0), let isSame = rows.bytes(row, 1) else { continue }
                same[Int(Int32(bigEndian: place.loadUnaligned(as: Int32.self)))] = isSame.first == 1
            }
        } catch {
            // An event that the database cannot hold differs from every stored one; halving finds it.
            guard case .dataRefused = StoreError(error) else { throw error }
            try connection.execute("ROLLBACK TO hapax_comparison")
            if places.count == 1, let only = places.first { return same[only] = false }
            let middle = places.startIndex + places.count / 2
            try compare(places[..<middle], of: group, buckets, connection, end, &same)
            try compare(places[middle...], of: group, buckets, connection, end, &same)
        }
    }

    /// One index look-up for each event, in one month.
    private static let sql = """
        SELECT n.place, e.event = n.event AND e.distinct_id = n.distinct_id AND e.properties = n.properties
        FROM unnest($1::int4[], $2::uuid[], $3::int4[], $4::text[], $5::text[], $6::jsonb[])
          AS n (place, event_id, project_id, event, distinct_id, properties)
        CROSS JOIN LATERAL (
          SELECT event, distinct_id, properties FROM events
          WHERE event_id = n.event_id AND project_id = n.project_id AND bucket >= $7::int4 AND bucket <= $8::int4 LIMIT 1
        ) AS e
        """
}
