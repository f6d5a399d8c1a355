import Foundation

/// The partitions of `events`: one for ids without a day, one for the days before the first month, one a month, and an open last one. Together
/// they hold every integer, so a clock that runs ahead finds a place as well.
enum PostgresPartitions {
    static let undated = "events_undated"
    static let past = "events_past"
    static let future = "events_future"

    /// Months that are made before they begin.
    static let monthsAhead = 3

    /// Months that one upkeep makes at most: a clock that jumps by years must not leave a partition for each month of them.
    static let maximumNewMonths = 24

    /// What counts as a possible today: a first start with another clock takes the nearer end.
    static let plausibleDays: ClosedRange<Int32> = 19_723...47_481

    /// How long a lock on `events` may be waited for. Writers queue behind it, so it is short; upkeep is tried again later.
    static let lockTimeout = "300ms"

    /// A calendar month (UTC), by the buckets it covers.
    struct Month: Equatable {
        var name: String
        /// Its first day, in days since 1970-01-01.
        var first: Int32
        /// The first day of the next month.
        var end: Int32
    }

    /// The month that holds `bucket`, and those after it.
    static func months(from bucket: Int32, count: Int) -> [Month] {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = .gmt
        var months: [Month] = []
        var parts = calendar.dateComponents([.year, .month], from: Date(timeIntervalSince1970: Double(bucket) * 86_400))
        for _ in 0..<count {
            let year = parts.year ?? 1970
            let month = parts.month ?? 1
            let next = DateComponents(year: month == 12 ? year + 1 : year, month: month == 12 ? 1 : month + 1)
            let name = "events_\(year)_\(month < 10 ? "0" : "")\(month)"
            months.append(Month(name: name, first: day(year, month, calendar), end: day(next.year ?? year, next.month ?? 1, calendar)))
            parts = next
        }
        return months
    }

    private static func day(_ year: Int, _ month: Int, _ calendar: Calendar) -> Int32 {
        let date = calendar.date(from: DateComponents(year: year, month: month, day: 1)) ?? Date(timeIntervalSince1970: 0)
        return Int32((date.timeIntervalSince1970 / 86_400).rounded())
    }

    /// Makes the months up to ``monthsAhead`` after today's. Does nothing, and takes no lock on `events`, when they are there.
    ///
    /// The open last partition is split in one transaction: rows that clocks running ahead put there move into their month.
    static func performUpkeep(_ connection: PostgresConnection, today: Int32) throws(StoreError) {
        try PostgresTransaction.run(connection) { () throws(StoreError) in
            try translating { () throws(PostgresError) in
                let openPartition = "SELECT from_bucket FROM event_partitions WHERE is_open"
                // Before the first partitions nothing can be stored: whoever starts waits for the server that makes them.
                let wait = try connection.query(openPartition).isEmpty ? "DEFAULT" : "'\(lockTimeout)'"
                try connection.execute("SET LOCAL lock_timeout = \(wait); LOCK TABLE event_partitions IN EXCLUSIVE MODE")
                try connection.execute("SET LOCAL lock_timeout = '\(lockTimeout)'")
                let rows = try connection.query(openPartition)
                let today = min(max(today, plausibleDays.lowerBound), plausibleDays.upperBound)
                guard let open = rows.first?[0].flatMap({ Int32($0) }) else { return try create(connection, today: today) }
                // From the open partition's first day, so that a server that slept for months leaves no gap.
                let goal = months(from: today, count: monthsAhead + 1).last?.end ?? today
                let missing = months(from: open, count: maximumNewMonths).filter { $0.first < goal }
                guard let last = missing.last else { return }
                try split(connection, adding: missing, end: last.end)
            }
        }
    }

    private static func create(_ connection: PostgresConnection, today: Int32) throws(PostgresError) {
        let months = months(from: today, count: monthsAhead + 1)
        guard let first = months.first, let last = months.last else { return }
        try add(connection, undated, from: nil, to: 0)
        try add(connection, past, from: 0, to: first.first)
        for month in months { try add(connection, month.name, from: month.first, to: month.end) }
        try add(connection, future, from: last.end, to: nil)
    }

    private static func split(_ connection: PostgresConnection, adding months: [Month], end: Int32) throws(PostgresError) {
        try connection.execute(
            "ALTER TABLE events DETACH PARTITION \(future); ALTER TABLE \(future) RENAME TO \(future)_split")
        try connection.execute("DELETE FROM event_partitions WHERE is_open")
        for month in months { try add(connection, month.name, from: month.first, to: month.end) }
        // The old primary key keeps the index's name until it is dropped.
        try connection.execute("ALTER TABLE \(future)_split RENAME CONSTRAINT \(future)_pkey TO \(future)_split_pkey")
        try add(connection, future, from: end, to: nil)
        let columns = PostgresEventColumn.list + ", received_at"
        try connection.execute("INSERT INTO events (\(columns)) SELECT \(columns) FROM \(future)_split; DROP TABLE \(future)_split")
    }

    private static func add(_ connection: PostgresConnection, _ name: String, from: Int32?, to: Int32?) throws(PostgresError) {
        let lower = from.map { "\($0)" } ?? "MINVALUE"
        let upper = to.map { "\($0)" } ?? "MAXVALUE"
        try connection.execute("CREATE TABLE \(name) PARTITION OF events FOR VALUES FROM (\(lower)) TO (\(upper))")
        _ = try connection.query(
            "INSERT INTO event_partitions (name, from_bucket, is_open) VALUES ($1, $2, $3)",
            [name, "\(from ?? .min)", to == nil ? "true" : "false"])
    }
}
