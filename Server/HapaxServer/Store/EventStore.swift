import HapaxModel

/// Where events are kept, once each.
///
/// Every conformer passes one contract suite. What they all promise:
/// - `commit` returns only after a durable COMMIT of every record that it does not report as found; if it throws, nothing is known about any
///   of them, and committing the same group again is safe.
/// - A key is stored at most once, whatever else commits at the same time, in this process or another.
/// - A record that was there stays as it was.
/// - `received_at` is given by the store when the transaction begins, and never goes back.
package protocol EventStore: Sendable {
    /// How many groups may be committed at the same time; `writer` is a number below it, and one writer commits one group at a time.
    var writerCount: Int { get }

    /// The first bucket that is still kept; dated ids before it are expired. Only ever rises. Known without asking the database.
    var horizon: Int32 { get }

    /// Months to come that have no partition of their own because too much was stored for them. Known without asking the database.
    var crowdedMonths: [CrowdedMonth] { get }

    /// Reads what is stored, beside the writers.
    var reader: any EventReader { get }

    /// Keeps the reports, beside the writers.
    var reports: any ReportDatabase { get }

    /// The number of a project, given once and for ever when its name is first seen.
    func projectID(named name: String) async throws(StoreError) -> Int32

    /// Stores in one transaction what is not there yet.
    ///
    /// - Returns: The fingerprint of each of the group's records and lookups that was there before.
    func commit(_ group: StoreGroup, writer: Int) async throws(StoreError) -> [EventKey: Int64]

    /// Whether each of some records has the content that is stored under its key, compared by value; nil where nothing is stored. Takes five
    /// seconds at most.
    func compare(_ records: [EventRecord], writer: Int) async throws(StoreError) -> [Bool?]

    /// Whether the store answers now.
    func check() async throws(StoreError)

    /// Learns what another server may have changed, ``horizon``, and catches up with what reading is made quick by. Called every few seconds.
    func refresh() async throws(StoreError)

    /// Prepares the days to come. Called at start and daily; it may take long, and holds up nobody.
    func performUpkeep() async throws(StoreError)

    /// Lets go of connections and locks. Nothing is committed afterwards.
    func close() async
}

/// A month to come with more events than can be moved at once, by project.
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
    /// Where their rows are.
    package var batches: [[UInt8]]
    /// Further keys to look for, in order, none of them a record's.
    package var lookups: [EventKey]
    /// One for each install, in order.
    package var reports: [InstallReport]

    init(records: [RowKey], in batches: [[UInt8]], lookups: [EventKey] = [], reports: [InstallReport] = []) {
        self.records = records
        self.batches = batches
        self.lookups = lookups
        self.reports = reports
    }

    /// Of records that have no rows yet.
    package init(records: [EventRecord], lookups: [EventKey] = [], reports: [InstallReport] = []) {
        var batch = RowBatch()
        for record in records { batch.append(record, entry: 0) }
        self.init(records: batch.keys, in: [batch.bytes], lookups: lookups, reports: reports)
    }

    package func record(_ key: RowKey) -> EventRecord { EventRecord(key, in: batches[Int(key.batch)]) }
}

/// Why a store did not do what it was asked. Descriptions hold no event content, no key and no connection string (I14).
package enum StoreError: Error, Hashable, Sendable {
    /// The store cannot be reached, is full or broken, or did not say whether it committed.
    case unavailable(String)
    /// The transaction lost against another one (`40001`, `40P01`), or a month was made while it looked for its rows' places (`23514`): it may
    /// be tried again at once.
    case collided
    /// The database cannot hold some record's data (class 22, 54000, 54001); the value is the SQLSTATE.
    case dataRefused(String)
    /// What was asked would take longer than it may.
    case tooHeavy
    /// The database's clock shows less than an instant that has been told as settled: what is stored now would come into days that are
    /// closed.
    case clockBehind
    /// The store must not be used as it is: its settings, its version, or somebody else's lock. Trying again does not help.
    case unusable(String)
}

extension StoreError: CustomStringConvertible {
    package var description: String {
        switch self {
        case .unavailable(let reason): "the store is unavailable: \(reason)"
        case .collided: "the transaction collided with another"
        case .dataRefused(let state): "the store refused an event's data (SQLSTATE \(state))"
        case .tooHeavy: "the question takes longer than it may"
        case .clockBehind: "the database's clock is behind what has been told as settled"
        case .unusable(let reason): "the store cannot be used: \(reason)"
        }
    }
}
