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
        var place: Place
    }

    /// An event of the group.
    struct Place: Hashable {
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
                    firsts[record.key] = First(fingerprint: record.fingerprint, place: Place(request: requestIndex, entry: entryIndex))
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

    /// The events that come under a known id in other bytes: only by their values can be said whether they are the same. Nothing else about
    /// them is known before.
    func repeats(found: [EventKey: Int64]) -> [(place: Place, record: EventRecord)] {
        let hasRepeats = storeGroup.records.count < requests.reduce(0) { $0 + $1.entries.count }
        guard hasRepeats || !found.isEmpty else { return [] }
        var repeats: [(place: Place, record: EventRecord)] = []
        for (requestIndex, request) in requests.enumerated() {
            for (entryIndex, entry) in request.entries.enumerated() {
                guard case .record(let record) = entry,
                    let stored = found[record.key] ?? firsts[record.key]?.fingerprint, stored != record.fingerprint
                else { continue }
                repeats.append((Place(request: requestIndex, entry: entryIndex), record))
            }
        }
        return repeats
    }

    /// The first event of the group under a record's key.
    func first(like record: EventRecord) -> EventRecord? { firsts[record.key].flatMap { self.record(at: $0.place) } }

    private func record(at place: Place) -> EventRecord? {
        guard case .record(let record) = requests[place.request].entries[place.entry] else { return nil }
        return record
    }

    /// What became of each event, for each request in order.
    ///
    /// - Parameters:
    ///   - found: What the store had before, with its fingerprint.
    ///   - refused: The records that the store could not hold, and why.
    ///   - differing: Of ``repeats(found:)`` those whose values differ as well.
    func outcomes(
        found: [EventKey: Int64], refused: [EventKey: EventProblem] = [:], differing: Set<Place> = []
    ) -> [[Receipt.Result]] {
        requests.enumerated().map { requestIndex, request in
            request.entries.enumerated().map { entryIndex, entry in
                switch entry {
                case .record(let record):
                    let place = Place(request: requestIndex, entry: entryIndex)
                    return outcome(
                        of: record, at: place, isKnown: found[record.key] != nil, refused: refused[record.key],
                        differs: differing.contains(place))
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
    func derivedWithOtherContent(found: [EventKey: Int64], differing: Set<Place>) -> Int {
        differing.count { place in record(at: place).map { $0.key.id.isDerived && found[$0.key] != nil } ?? false }
    }

    private func isStored(_ key: EventKey, found: [EventKey: Int64], refused: [EventKey: EventProblem]) -> Bool {
        found[key] != nil || (firsts[key] != nil && refused[key] == nil)
    }

    private func outcome(
        of record: EventRecord, at place: Place, isKnown: Bool, refused problem: EventProblem?, differs: Bool
    ) -> Receipt.Result {
        var result = Receipt.Result(index: place.entry, eventID: record.key.id, outcome: .stored)
        let first = firsts[record.key]
        if !isKnown, let problem {
            // The store has refused another content; this one has not been tried.
            guard first?.fingerprint == record.fingerprint else {
                result.outcome = .retry
                return result
            }
            result.outcome = .rejected
            result.reason = problem.reason.rawValue
            result.detail = problem.detail
        } else if !isKnown, first == nil {
            result.outcome = .expired
            result.detail = "older than what is still kept"
        } else if isKnown || first?.place != place {
            result.outcome = differs && !record.key.id.isDerived ? .conflict : .duplicate
            if result.outcome == .conflict { result.detail = "another content is stored under this id" }
        }
        return result
    }
}
