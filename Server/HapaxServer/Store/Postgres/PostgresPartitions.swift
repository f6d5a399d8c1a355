import HapaxModel

/// The partitions of `events`: one for ids without a day, one for the days before the first month, one a month, and an open last one. Together
/// they hold every integer, so a clock that runs ahead finds a place as well.
///
/// The open partition is split month by month, without ever holding up writers for longer than ``lockTimeout``, and without a moment at which
/// a second copy of an id could get in: see ``split(_:month:)``.
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

    /// Blocks of the open partition that are moved in one transaction: about 10,000 rows.
    static let blocksAtOnce = 512

    /// A calendar month (UTC), by the buckets it covers.
    struct Month: Equatable {
        var name: String
        var buckets: Range<Int32>

        /// Its rows are forbidden in the open partition while they move.
        var constraint: String { "hapax_moving_\(buckets.lowerBound)_\(buckets.upperBound)" }
    }

    /// The month that holds `bucket`, and those after it; fewer where the calendar ends.
    static func months(from bucket: Int32, count: Int) -> [Month] {
        guard var day = CalendarDay(daysSince1970: bucket) else { return [] }
        var months: [Month] = []
        while months.count < count {
            let (year, month, _) = day.components
            guard let first = CalendarDay(year: year, month: month, day: 1),
                let next = CalendarDay(year: month == 12 ? year + 1 : year, month: month == 12 ? 1 : month + 1, day: 1)
            else { break }
            months.append(
                Month(name: "events_\(year)_\(month < 10 ? "0" : "")\(month)", buckets: first.daysSince1970..<next.daysSince1970))
            day = next
        }
        return months
    }

    // MARK: - The first ones

    /// Makes the first partitions, if there are none yet. Whoever starts at the same time waits for that.
    static func create(_ connection: PostgresConnection, today: Int32) throws(StoreError) {
        let today = clamped(today)
        try PostgresTransaction.run(connection) { () throws(StoreError) in
            try translating { () throws(PostgresError) in
                guard try openBucket(connection) == nil else { return }
                try connection.execute("LOCK TABLE event_partitions IN EXCLUSIVE MODE")
                guard try openBucket(connection) == nil else { return }
                let months = months(from: today, count: monthsAhead + 1)
                guard let first = months.first, let last = months.last else { return }
                try add(connection, undated, from: nil, to: 0)
                try add(connection, past, from: 0, to: first.buckets.lowerBound)
                for month in months { try add(connection, month.name, from: month.buckets.lowerBound, to: month.buckets.upperBound) }
                try add(connection, future, from: last.buckets.upperBound, to: nil)
            }
        }
    }

    private static func add(_ connection: PostgresConnection, _ name: String, from: Int32?, to: Int32?) throws(PostgresError) {
        let lower = from.map { "\($0)" } ?? "MINVALUE"
        let upper = to.map { "\($0)" } ?? "MAXVALUE"
        try connection.execute("CREATE TABLE \(name) PARTITION OF events FOR VALUES FROM (\(lower)) TO (\(upper))")
        try note(connection, name, from: from ?? .min, isOpen: to == nil)
    }

    private static func note(_ connection: PostgresConnection, _ name: String, from: Int32, isOpen: Bool) throws(PostgresError) {
        _ = try connection.query(
            "INSERT INTO event_partitions (name, from_bucket, is_open) VALUES ($1, $2, $3)", [name, "\(from)", isOpen ? "true" : "false"])
    }

    private static func clamped(_ today: Int32) -> Int32 { min(max(today, plausibleDays.lowerBound), plausibleDays.upperBound) }

    // MARK: - What there is

    /// The first bucket of the open partition; nil before the first partitions are made.
    static func openBucket(_ connection: PostgresConnection) throws(PostgresError) -> Int32? {
        try connection.query("SELECT from_bucket FROM event_partitions WHERE is_open").first?[0].flatMap { Int32($0) }
    }

    /// The buckets whose rows are being moved out of the open partition.
    static func moving(_ connection: PostgresConnection) throws(PostgresError) -> Range<Int32>? {
        let name = try connection.query(
            "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass('\(future)') AND conname LIKE 'hapax\\_moving\\_%'"
        ).first?[0]
        let numbers = (name ?? "").split(separator: "_").compactMap { Int32($0) }
        return numbers.count == 2 && numbers[0] < numbers[1] ? numbers[0]..<numbers[1] : nil
    }

    /// When the first of the rows was received that are on their way, and so may be missing from `events`; NULL if none are.
    static let movingSince = """
        (SELECT min(obj_description(oid, 'pg_constraint'))::timestamptz FROM pg_constraint
         WHERE conrelid = to_regclass('\(future)') AND conname LIKE 'hapax\\_moving\\_%')
        """

    /// A text that another one follows when a month begins to be split off, and when it has been: what was read between two equal ones lay
    /// where it lies.
    static let places = """
        (SELECT concat_ws(' ', from_bucket, \(movingSince)) FROM event_partitions WHERE is_open)
        """

    /// The months that are due and not made yet, in order: from the open partition's first day, so that a server that slept for months leaves
    /// no gap.
    static func due(_ connection: PostgresConnection, today: Int32) throws(PostgresError) -> [Month] {
        guard let open = try openBucket(connection) else { return [] }
        let goal = months(from: clamped(today), count: monthsAhead + 1).last?.buckets.upperBound ?? today
        return months(from: open, count: maximumNewMonths).filter { $0.buckets.lowerBound < goal }
    }

    // MARK: - Splitting

    /// Makes the month at the beginning of the open partition a partition of its own. What was begun before and cut off goes on.
    ///
    /// 1. The month is forbidden in the open partition, by a CHECK that is not validated. From then on its ids are answered `retry`.
    /// 2. Its rows move, some blocks a transaction, to a table that is not attached yet. Since when they were received is noted before.
    /// 3. The CHECK is validated, which locks nobody out, so that PostgreSQL believes the new bounds without a look.
    /// 4. In one short transaction the open partition is detached, the month attached, and the rest attached again.
    ///
    /// - Parameter forbidden: Called behind the first step.
    static func split(_ connection: PostgresConnection, month: Month, forbidden: (Range<Int32>) -> Void) throws(StoreError) {
        try forbid(connection, month)
        forbidden(month.buckets)
        try translating { () throws(PostgresError) in
            try connection.execute(
                "CREATE TABLE IF NOT EXISTS \(month.name) (LIKE events INCLUDING DEFAULTS INCLUDING INDEXES, CONSTRAINT hapax_month CHECK "
                    + "(bucket >= \(month.buckets.lowerBound) AND bucket < \(month.buckets.upperBound)))")
            try announce(connection, month)
            // Once validated there is nothing left to move: only the last step is tried again.
            guard try !isValidated(connection, month) else { return }
            try move(connection, month)
            try connection.execute("ALTER TABLE \(future) VALIDATE CONSTRAINT \(month.constraint)")
        }
        try attach(connection, month)
    }

    private static func isValidated(_ connection: PostgresConnection, _ month: Month) throws(PostgresError) -> Bool {
        let sql = "SELECT convalidated FROM pg_constraint WHERE conrelid = to_regclass('\(future)') AND conname = $1"
        return try connection.query(sql, [month.constraint]).first?[0] == "t"
    }

    private static func forbid(_ connection: PostgresConnection, _ month: Month) throws(StoreError) {
        try PostgresTransaction.run(connection) { () throws(StoreError) in
            try translating { () throws(PostgresError) in
                guard try moving(connection) != month.buckets else { return }
                try connection.execute(
                    "SET LOCAL lock_timeout = '\(lockTimeout)'; ALTER TABLE \(future) ADD CONSTRAINT \(month.constraint) "
                        + "CHECK (bucket >= \(month.buckets.upperBound)) NOT VALID")
            }
        }
    }

    /// Notes with the CHECK when the first row of the month was received, see ``movingSince``: nothing of the month can be added any more.
    private static func announce(_ connection: PostgresConnection, _ month: Month) throws(PostgresError) {
        let first = try connection.query(
            """
            SELECT to_char(min(received_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM (
              SELECT received_at FROM \(future) WHERE bucket >= \(month.buckets.lowerBound) AND bucket < \(month.buckets.upperBound)
              UNION ALL SELECT received_at FROM \(month.name)
            ) AS rows
            """
        ).first?[0]
        guard let first else { return }
        try connection.execute("COMMENT ON CONSTRAINT \(month.constraint) ON \(future) IS '\(first)'")
    }

    /// One pass is enough: nothing of the month can be added any more.
    private static func move(_ connection: PostgresConnection, _ month: Month) throws(PostgresError) {
        let columns = PostgresEventColumn.list + ", received_at"
        let size = "SELECT pg_relation_size('\(future)') / current_setting('block_size')::int"
        let blocks = try connection.query(size).first?[0].flatMap { Int($0) } ?? 0
        for first in stride(from: 0, to: blocks, by: blocksAtOnce) {
            try connection.execute(
                """
                WITH moved AS (
                  DELETE FROM \(future) WHERE ctid >= '(\(first),0)' AND ctid < '(\(first + blocksAtOnce),0)'
                  AND bucket >= \(month.buckets.lowerBound) AND bucket < \(month.buckets.upperBound) RETURNING \(columns)
                ) INSERT INTO \(month.name) (\(columns)) SELECT \(columns) FROM moved
                """)
        }
    }

    private static func attach(_ connection: PostgresConnection, _ month: Month) throws(StoreError) {
        let (first, end) = (month.buckets.lowerBound, month.buckets.upperBound)
        try PostgresTransaction.run(connection) { () throws(StoreError) in
            try translating { () throws(PostgresError) in
                try connection.execute(
                    """
                    SET LOCAL lock_timeout = '\(lockTimeout)';
                    ALTER TABLE events DETACH PARTITION \(future);
                    ALTER TABLE events ATTACH PARTITION \(month.name) FOR VALUES FROM (\(first)) TO (\(end));
                    ALTER TABLE events ATTACH PARTITION \(future) FOR VALUES FROM (\(end)) TO (MAXVALUE);
                    ALTER TABLE \(future) DROP CONSTRAINT \(month.constraint);
                    ALTER TABLE \(month.name) DROP CONSTRAINT hapax_month;
                    UPDATE event_partitions SET from_bucket = \(end) WHERE is_open;
                    """)
                try note(connection, month.name, from: first, isOpen: false)
            }
        }
    }
}
