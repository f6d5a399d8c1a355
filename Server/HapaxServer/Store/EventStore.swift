import HapaxModel

/// Stores events, each key once.
///
/// Every conformer passes one contract suite. What they all promise:
/// - `commit` returns only after a durable COMMIT of every record that it does not report as found; if it throws, nothing is known about any
///   of them, and committing the same group again is safe.
/// - A key is stored at most once, whatever else commits at the same time, in this process or another.
/// - A stored record is never changed.
/// - `received_at` is the store's clock when the transaction begins, never before an instant that was reported as settled.
package protocol EventStore: Sendable {
    /// How many groups may be committed at the same time; `writer` is a number below it, and one writer commits one group at a time.
    var writerCount: Int { get }

    /// The first bucket that is still kept; dated ids before it are expired. Only ever rises. Known without asking the database.
    var horizon: Int32 { get }

    /// Future months that have no partition of their own because too many events were stored for them. Known without asking the database.
    var crowdedMonths: [CrowdedMonth] { get }

    /// Reads stored events, on connections of its own.
    var reader: any EventReader { get }

    /// Everything else that is asked of the database, or changed in it.
    var sql: any SQLStore { get }

    /// The number of a project, given once and for ever when its name is first seen.
    func projectID(named name: String) async throws(StoreError) -> Int32

    /// Stores in one transaction the records whose keys are not stored yet.
    ///
    /// - Returns: The fingerprint of each of the group's records and lookups that was stored before.
    func commit(_ group: StoreGroup, writer: Int) async throws(StoreError) -> [EventKey: Int64]

    /// Whether each of some records has the content that is stored under its key, compared by value; nil where nothing is stored. Takes five
    /// seconds at most.
    func compare(_ records: [EventRecord], writer: Int) async throws(StoreError) -> [Bool?]

    /// Returns if the store works now; else throws.
    func check() async throws(StoreError)

    /// Reads ``horizon``, which another server may have raised, and brings indexes for reading up to date. Called every few seconds.
    func refresh() async throws(StoreError)

    /// Makes partitions for future months. Called at start and daily. It may take long; other calls go on meanwhile.
    func performUpkeep() async throws(StoreError)

    /// Closes connections and releases locks. Nothing can be committed afterwards.
    func close() async
}

/// One project's events in a future month that has too many to be moved in one transaction.
package struct CrowdedMonth: Hashable, Sendable {
    /// As in `2028-12`.
    package var month: String
    package var project: String
    package var rows: Int64
}

/// What one transaction is to store.
package struct StoreGroup: Sendable {
    /// In the order of their keys, each key once.
    package var records: [RowKey]
    /// The buffers that hold the records' rows.
    package var batches: [[UInt8]]
    /// Further keys to look up, sorted; none is a record's.
    package var lookups: [EventKey]
    /// At most one for each install, sorted by key.
    package var reports: [InstallReport]
    /// What becomes of the installs' sequences, once it is known which keys were stored before; nil: the reports alone are kept.
    var entries: (@Sendable (_ found: [EventKey: Int64]) -> [InstallBook.Entry])?
    /// No record is dated before it. If the store's horizon is higher meanwhile, the group collides.
    package var horizon: Int32

    init(
        records: [RowKey], in batches: [[UInt8]], lookups: [EventKey] = [], reports: [InstallReport] = [], horizon: Int32 = .max
    ) {
        self.horizon = horizon
        self.records = records
        self.batches = batches
        self.lookups = lookups
        self.reports = reports
    }

    /// Encodes the records as rows first.
    package init(records: [EventRecord], lookups: [EventKey] = [], reports: [InstallReport] = []) {
        var batch = RowBatch()
        for record in records { batch.append(record, entry: 0) }
        self.init(records: batch.keys, in: [batch.bytes], lookups: lookups, reports: reports)
    }

    /// In the order of ``reports``.
    func entries(found: [EventKey: Int64]) -> [InstallBook.Entry] { entries?(found) ?? reports.map { InstallBook.Entry(report: $0) } }

    package func record(_ key: RowKey) -> EventRecord { EventRecord(key, in: batches[Int(key.batch)]) }
}

/// Why a store did not do what it was asked. Descriptions hold no event content, no key and no connection string (I14).
package enum StoreError: Error, Hashable, Sendable {
    /// The store cannot be reached, is full or broken, or did not say whether it committed.
    case unavailable(String)
    /// The transaction conflicted with another one (`40001`, `40P01`), or a month's partition was made while it ran, or the horizon was raised
    /// (`23514`): it may be retried at once.
    case collided
    /// The database cannot hold some record's data (class 22, 54000, 54001); the value is the SQLSTATE.
    case dataRefused(String)
    /// The question would take longer than its deadline.
    case tooHeavy
    /// The database's clock is behind an instant that was already reported as settled: an event stored now could belong to a closed day.
    case clockBehind
    /// Another process has the embedded store's file open.
    case inUse(path: String)
    /// The server has no role that may change this.
    case notPermitted
    /// The store must not be used, because of its settings, its version, or another process's lock. Trying again does not help.
    case unusable(String)
}

extension StoreError {
    /// Whether it is the same trouble for people: a connection that is refused and one that was lost are.
    func isLike(_ other: StoreError) -> Bool {
        if case (.unavailable, .unavailable) = (self, other) { return true }
        return self == other
    }
}

extension StoreError: CustomStringConvertible {
    package var description: String {
        switch self {
        case .unavailable(let reason): "the store is unavailable: \(reason)"
        case .collided: "the transaction collided with another"
        case .dataRefused(let state): "the store refused an event's data (SQLSTATE \(state))"
        case .tooHeavy: "the question takes longer than it may"
        case .clockBehind: "the database's clock is behind an instant that was already reported as settled"
        case .inUse(let path): "the store cannot be used: another process has \(path) open"
        case .notPermitted: "the serving role may not change this; set store-admin"
        case .unusable(let reason): "the store cannot be used: \(reason)"
        }
    }
}
