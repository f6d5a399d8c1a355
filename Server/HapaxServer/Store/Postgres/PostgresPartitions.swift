import HapaxModel

/// The partitions of `events`: one for ids without a day, one for the days before the first month, one for each month up to two years ahead, and
/// DEFAULT for ids whose month has none yet. There may be gaps between the months.
///
/// A month's rows in DEFAULT are moved in the transaction that makes the month, so that each row lies in one place at any moment. Only groups
/// with ids that have no month yet wait for that.
enum PostgresPartitions {
    static let undated = "events_undated"
    static let past = "events_past"
    static let rest = "events_default"

    /// How many months are made before they begin. So rows in DEFAULT are dated further ahead, as long as upkeep succeeds.
    static let monthsAhead = 24

    /// The days since 1970 that are plausible as today, 2024 to 2099: if the clock shows another day, upkeep takes the nearer end.
    static let plausibleDays: ClosedRange<Int32> = 19_723...47_481

    /// When this server was written: a clock that shows an earlier day was never set, and must not decide which months are the first.
    static let earliestStart = CalendarDay(year: 2026, month: 1, day: 1)?.daysSince1970 ?? 0

    /// The longest wait for a lock, during which readers can queue up. Longer than `deadlock_timeout`, so that an autovacuum gives way
    /// (https://www.postgresql.org/docs/current/explicit-locking.html).
    static let lockTimeout = "2s"

    /// The same for what removes old months: an attempt is made again and again, and during a dump each one would hold up all readers for as long.
    static let shortLockTimeout = "200ms"

    /// The longest scan of DEFAULT when a month is attached: a second for some millions of rows, during which readers wait.
    static let statementTimeout = "5s"

    /// Rows that one transaction moves at most: ids without a month wait for it.
    static let maximumMoved = 100_000

    /// The month that holds `bucket`, and those after it.
    static func months(from bucket: Int32, count: Int) -> [CalendarMonth] {
        guard let first = CalendarMonth(bucket: bucket) else { return [] }
        return (1..<count).reduce(into: [first]) { months, _ in months.append((months.last ?? first).next) }
    }

    // MARK: - The first ones

    /// Makes the first partitions, if there are none yet. A server that starts at the same time waits for that.
    static func create(_ connection: PostgresConnection, today: Int32) throws(StoreError) {
        try PostgresTransaction.run(connection) { () throws(StoreError) in
            try translating { () throws(PostgresError) in try connection.execute("LOCK TABLE hapax_migrations IN ACCESS EXCLUSIVE MODE") }
            guard try translating({ () throws(PostgresError) in try names(connection).isEmpty }) else { return }
            guard today >= earliestStart else {
                throw .unusable("its clock shows a day before this server was written; set the clock of the database's machine")
            }
            let months = months(from: clamped(today), count: monthsAhead + 1)
            guard let first = months.first else { return }
            let parts =
                [(undated, "FROM (MINVALUE) TO (0)"), (past, "FROM (0) TO (\(first.buckets.lowerBound))")]
                + months.map { ($0.partition, "FROM (\($0.buckets.lowerBound)) TO (\($0.buckets.upperBound))") }
            let statements = parts.map { "CREATE TABLE \($0) PARTITION OF events FOR VALUES \($1)" }
            try translating { () throws(PostgresError) in
                try connection.execute((statements + ["CREATE TABLE \(rest) PARTITION OF events DEFAULT"]).joined(separator: ";"))
            }
        }
    }

    private static func clamped(_ today: Int32) -> Int32 { min(max(today, plausibleDays.lowerBound), plausibleDays.upperBound) }

    /// The names of all partitions; none before the first start.
    static func names(_ connection: PostgresConnection) throws(PostgresError) -> Set<String> {
        let sql = "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass('events')"
        return Set(try connection.query(sql).compactMap { $0[0] })
    }

    /// The names of the months that this session's role may read by themselves: as their owner, or by ``PostgresRoles/grant(_:to:)``.
    static func readable(_ connection: PostgresConnection) throws(PostgresError) -> [String] {
        try connection.query(
            """
            SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = to_regclass('events') AND c.relname NOT IN ('\(undated)', '\(past)', '\(rest)')
              AND has_table_privilege(c.oid, 'SELECT')
            """
        ).compactMap { $0[0] }
    }

    // MARK: - Months to come

    /// Keeps two servers from making the same month at once. An arbitrary number that no other program is likely to use.
    private static let advisoryLock = "\(0x4861_7061_78)"

    /// Makes the months that are due. A month that has been made is not made again.
    ///
    /// - Parameter tell: Called before any month is made, with the months that cannot be made because too many of their rows are in DEFAULT.
    /// - Returns: The same months, nil if this role may not make any; and how many months are due.
    static func makeDue(
        _ connection: PostgresConnection, today: Int32?, tell: ([CrowdedMonth]) -> Void
    ) throws(StoreError) -> (crowded: [CrowdedMonth]?, due: Int) {
        let today = try day(connection, today)
        defer { endLockTimeout(connection) }
        let (due, crowded) = try translating { () throws(PostgresError) in
            try connection.execute("SET lock_timeout = '\(lockTimeout)'")
            let due = try self.due(connection, today: today)
            guard try PostgresRoles.mayChange(connection) else { return (due, [CrowdedMonth]?.none) }
            return (due, try self.crowded(connection, due))
        }
        guard let crowded else { return (nil, due.count) }
        tell(crowded)
        let isOurs = try translating { () throws(PostgresError) in
            try connection.query("SELECT pg_try_advisory_lock($1)", [advisoryLock]).first?[0] == "t"
        }
        // Another server is making the months.
        guard isOurs else { return (crowded, due.count) }
        defer { _ = try? connection.query("SELECT pg_advisory_unlock($1)", [advisoryLock]) }
        let names = Set(crowded.map(\.month))
        // Asked again under the lock: another server may just have made some.
        for month in try translating({ () throws(PostgresError) in try self.due(connection, today: today) })
        where !names.contains(month.text) {
            try make(connection, month)
        }
        return (crowded, due.count)
    }

    /// What follows on this connection, as a VACUUM, waits for its locks as long as it takes. A connection that is lost has no timeout any more.
    private static func endLockTimeout(_ connection: PostgresConnection) { _ = try? connection.execute("RESET lock_timeout") }

    /// The database's day, unless it is given: a server whose clock is off must make no partitions for another century.
    static func day(_ connection: PostgresConnection, _ today: Int32?) throws(StoreError) -> Int32 {
        if let today { return today }
        let rows = try translating { () throws(PostgresError) in
            try connection.query("SELECT floor(extract(epoch FROM now()) / 86400)::int4")
        }
        guard let day = rows.first?[0].flatMap({ Int32($0) }) else { throw .unavailable("its clock cannot be read") }
        return day
    }

    /// The months that are due and have no partition yet, in order; none before the first month that was made.
    static func due(_ connection: PostgresConnection, today: Int32) throws(PostgresError) -> [CalendarMonth] {
        let made = try names(connection)
        let first = made.subtracting([undated, past, rest]).min() ?? ""
        return months(from: clamped(today), count: monthsAhead + 1).filter { !made.contains($0.partition) && $0.partition > first }
    }

    /// The months with more rows in DEFAULT than one transaction may move, with the rows of each project.
    static func crowded(_ connection: PostgresConnection, _ months: [CalendarMonth]) throws(PostgresError) -> [CrowdedMonth] {
        var crowded: [CrowdedMonth] = []
        for month in months {
            let rows = try connection.query(
                """
                SELECT p.name, e.rows FROM (SELECT project_id, count(*) AS rows FROM \(rest) WHERE \(month.condition) GROUP BY 1) AS e
                JOIN projects p USING (project_id) ORDER BY p.name
                """
            ).map { CrowdedMonth(month: month.text, project: $0[0] ?? "", rows: $0[1].flatMap { Int64($0) } ?? 0) }
            if rows.reduce(0, { $0 + $1.rows }) > maximumMoved { crowded += rows }
        }
        return crowded
    }

    /// Makes a month in one transaction. It blocks readers in its last step only, and writers only for ids that have no month.
    static func make(_ connection: PostgresConnection, _ month: CalendarMonth) throws(StoreError) {
        let columns = PostgresEventColumn.list + ", received_at"
        try PostgresTransaction.run(connection) { () throws(StoreError) in
            try translating { () throws(PostgresError) in
                try connection.execute(
                    """
                    SET LOCAL enable_seqscan = off; SET LOCAL statement_timeout = '\(statementTimeout)';
                    LOCK TABLE \(rest) IN SHARE ROW EXCLUSIVE MODE;
                    CREATE TABLE \(month.partition) (LIKE events INCLUDING DEFAULTS INCLUDING INDEXES);
                    WITH moved AS (DELETE FROM \(rest) WHERE \(month.condition) RETURNING \(columns))
                      INSERT INTO \(month.partition) (\(columns)) SELECT \(columns) FROM moved;
                    ALTER TABLE events ATTACH PARTITION \(month.partition)
                      FOR VALUES FROM (\(month.buckets.lowerBound)) TO (\(month.buckets.upperBound))
                    """)
            }
        }
    }

    // MARK: - Months that are no longer kept

    /// Removes the rows of some days, below which there are none any more, and lets the database refuse every id of a day before their end.
    ///
    /// A month's table stays, empty. To drop it would lock `events`, and so all writers and readers, and would leave its ids to DEFAULT.
    static func clear(_ connection: PostgresConnection, _ buckets: Range<Int32>) throws(StoreError) {
        guard let start = CalendarMonth(bucket: max(buckets.lowerBound, plausibleDays.lowerBound)),
            let end = CalendarMonth(bucket: buckets.upperBound)
        else { return }
        let made = try translating { () throws(PostgresError) in
            try connection.execute("SET lock_timeout = '\(shortLockTimeout)'; SET client_min_messages = warning")
            return try names(connection)
        }
        defer { endLockTimeout(connection) }
        let refusing = try translating { () throws(PostgresError) in try tables(connection, refusing: buckets.upperBound) }
        let months = Array(sequence(first: start) { $0.next }.prefix { $0 < end }).map(\.partition).filter(made.contains)
        let isPastWhole = made.subtracting([undated, past, rest]).min().map { $0 <= end.partition } ?? false
        let emptied = isPastWhole ? [past] + months : months
        let thinned = isPastWhole ? [rest] : [past, rest]
        // Before anything is removed, so that nothing of it can return.
        for table in emptied + thinned where !refusing.contains(table) {
            try translating { () throws(PostgresError) in try connection.execute(horizon(of: table, buckets.upperBound)) }
        }
        for table in emptied {
            try note(connection, "SELECT * FROM \(table)")
            try translating { () throws(PostgresError) in try connection.execute("TRUNCATE \(table)") }
        }
        for table in thinned {
            let old = "bucket >= 0 AND bucket < \(buckets.upperBound) AND event_id < '\(EventID.least(of: buckets.upperBound))'"
            try note(connection, "SELECT * FROM \(table) WHERE \(old)")
            let delete = """
                DELETE FROM \(table) WHERE ctid = ANY (ARRAY(SELECT ctid FROM \(table) WHERE \(old) LIMIT \(Tombstone.rowsAtOnce))) RETURNING 1
                """
            while try translating({ () throws(PostgresError) in try !connection.query(delete).isEmpty }) {}
        }
    }

    /// Notes that rows are about to go: in ``Removals``, and in the books; first their numbers, which takes as long as there are many, then a thousand ranges at a time,
    /// since groups wait for each.
    private static func note(_ connection: PostgresConnection, _ rows: String) throws(StoreError) {
        let latest = Removals.note("(\(StoreSQL(stringLiteral: rows))) AS e WHERE event <> ''").forPostgres
        let islands = StoredNumbers.islands("(\(StoreSQL(stringLiteral: rows))) AS e").forPostgres
        try translating { () throws(PostgresError) in
            try connection.execute(
                """
                CREATE TEMP TABLE IF NOT EXISTS hapax_removed (project_id integer, install_id uuid, first bigint, last bigint);
                TRUNCATE hapax_removed
                """)
            _ = try connection.query(latest.sql, latest.parameters)
            _ = try connection.query("INSERT INTO hapax_removed \(islands.sql)", islands.parameters)
            let part = """
                WITH part AS (
                  DELETE FROM hapax_removed WHERE ctid = ANY (ARRAY(SELECT ctid FROM hapax_removed LIMIT \(Tombstone.rowsAtOnce))) RETURNING *
                ), noted AS (
                  UPDATE installs SET removed = installs.removed + r.numbers FROM (
                    SELECT project_id, install_id, range_agg(int8range(first, last, '[]')) AS numbers FROM part GROUP BY project_id, install_id
                  ) AS r WHERE installs.project_id = r.project_id AND installs.install_id = r.install_id AND NOT installs.is_unknown
                ) SELECT count(*) FROM part
                """
            while true {
                // Groups lock installs in another order.
                do throws(PostgresError) { if try connection.query(part).first?[0] == "0" { return } } catch {
                    guard error.sqlState == "40P01" else { throw error }
                }
            }
        }
    }

    /// The tables that refuse ids before a bucket already: an earlier attempt has got so far.
    private static func tables(_ connection: PostgresConnection, refusing bucket: Int32) throws(PostgresError) -> Set<String> {
        let sql = """
            SELECT conrelid::regclass::text FROM pg_constraint
            WHERE conname = 'hapax_horizon' AND pg_get_constraintdef(oid) LIKE '%(bucket >= ' || $1 || '))%'
            """
        return Set(try connection.query(sql, ["\(bucket)"]).compactMap { $0[0] })
    }

    /// `NOT VALID` spares the rows that are there, which are to be removed
    /// (https://www.postgresql.org/docs/current/sql-altertable.html).
    private static func horizon(of table: String, _ bucket: Int32) -> String {
        """
        ALTER TABLE \(table) DROP CONSTRAINT IF EXISTS hapax_horizon,
          ADD CONSTRAINT hapax_horizon CHECK (bucket < 0 OR bucket >= \(bucket)) NOT VALID
        """
    }
}

extension CalendarMonth {
    /// The name of its partition.
    var partition: String { "events_" + text.replacing("-", with: "_") }

    /// What holds for its rows and no others. An id begins with its instant, so that the index finds them.
    fileprivate var condition: String {
        "event_id >= '\(EventID.least(of: buckets.lowerBound))' AND event_id < '\(EventID.least(of: buckets.upperBound))' "
            + "AND bucket >= \(buckets.lowerBound) AND bucket < \(buckets.upperBound)"
    }
}
