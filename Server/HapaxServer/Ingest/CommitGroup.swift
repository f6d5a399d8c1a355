import HapaxModel

/// Several requests that are committed together: what the store is asked, and what its answer means for each event.
///
/// A value without I/O: this is where duplicates inside a group, conflicts, refusals and expiry are decided.
struct CommitGroup {
    private let requests: [IngestRequest]
    private let horizon: Int32
    /// The first record of each key; later ones are compared with it.
    private let firsts: [EventKey: First]
    let storeGroup: StoreGroup

    private struct First {
        var fingerprint: Int64
        var request: Int
        var entry: Int
    }

    /// - Parameter horizon: See ``EventStore/horizon``.
    init(_ requests: [IngestRequest], horizon: Int32) {
        var firsts: [EventKey: First] = [:]
        var records: [EventRecord] = []
        var lookups: Set<EventKey> = []
        records.reserveCapacity(requests.reduce(0) { $0 + $1.entries.count })
        firsts.reserveCapacity(records.capacity)
        for (requestIndex, request) in requests.enumerated() {
            for (entryIndex, entry) in request.entries.enumerated() {
                switch entry {
                case .record(let record) where Self.isExpired(record.key.id, horizon):
                    lookups.insert(record.key)
                case .record(let record):
                    guard firsts[record.key] == nil else { continue }
                    firsts[record.key] = First(fingerprint: record.fingerprint, request: requestIndex, entry: entryIndex)
                    records.append(record)
                case .refused(_, let id, _):
                    if let id { lookups.insert(EventKey(id: id, projectID: request.projectID)) }
                }
            }
        }
        self.requests = requests
        self.horizon = horizon
        self.firsts = firsts
        storeGroup = StoreGroup(
            records: records.sorted { $0.key < $1.key },
            lookups: lookups.filter { firsts[$0] == nil }.sorted(),
            reports: InstallReport.merged(requests.compactMap(\.report)))
    }

    private static func isExpired(_ id: EventID, _ horizon: Int32) -> Bool {
        let bucket = id.bucket
        return bucket >= 0 && bucket < horizon
    }

    /// What became of each event, for each request in order.
    ///
    /// - Parameters:
    ///   - found: What the store had before, with its fingerprint.
    ///   - refused: The records that the store could not hold, and why.
    func outcomes(found: [EventKey: Int64], refused: [EventKey: EventProblem] = [:]) -> [[Receipt.Result]] {
        requests.enumerated().map { requestIndex, request in
            request.entries.enumerated().map { entryIndex, entry in
                switch entry {
                case .record(let record):
                    return outcome(
                        of: record, at: entryIndex, in: requestIndex, stored: found[record.key], refused: refused[record.key])
                case .refused(let problem, let id, _):
                    let key = id.map { EventKey(id: $0, projectID: request.projectID) }
                    if let key, isStored(key, found: found, refused: refused) {
                        return Receipt.Result(index: entryIndex, eventID: id, outcome: .duplicate)
                    }
                    return Receipt.Result(
                        index: entryIndex, eventID: id, outcome: .rejected, reason: problem.reason.rawValue,
                        detail: problem.detail)
                }
            }
        }
    }

    /// Derived ids that the store had with another content: the second arrival is a duplicate by promise, and the other one may be somebody
    /// else's who has occupied the id.
    func derivedWithOtherContent(found: [EventKey: Int64]) -> Int {
        if found.isEmpty { return 0 }
        return storeGroup.records.count { record in
            record.key.id.isDerived && found[record.key, default: record.fingerprint] != record.fingerprint
        }
    }

    private func isStored(_ key: EventKey, found: [EventKey: Int64], refused: [EventKey: EventProblem]) -> Bool {
        found[key] != nil || (firsts[key] != nil && refused[key] == nil)
    }

    private func outcome(
        of record: EventRecord, at entry: Int, in request: Int, stored: Int64?, refused problem: EventProblem?
    ) -> Receipt.Result {
        var result = Receipt.Result(index: entry, eventID: record.key.id, outcome: .stored)
        if let stored {
            return compare(record, with: stored, &result)
        }
        let isFirst = firsts[record.key].map { $0.request == request && $0.entry == entry } ?? false
        if let problem {
            // The store has refused another content; this one has not been tried.
            guard isFirst || firsts[record.key]?.fingerprint == record.fingerprint else {
                result.outcome = .retry
                return result
            }
            result.outcome = .rejected
            result.reason = problem.reason.rawValue
            result.detail = problem.detail
            return result
        }
        guard let first = firsts[record.key] else {
            result.outcome = .expired
            result.detail = "older than what is still kept"
            return result
        }
        if isFirst { return result }
        return compare(record, with: first.fingerprint, &result)
    }

    private func compare(_ record: EventRecord, with fingerprint: Int64, _ result: inout Receipt.Result) -> Receipt.Result {
        let isSame = record.key.id.isDerived || record.fingerprint == fingerprint
        result.outcome = isSame ? .duplicate : .conflict
        if !isSame { result.detail = "another content is stored under this id" }
        return result
    }
}
