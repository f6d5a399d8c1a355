import HapaxModel

/// Several requests that are committed together: what the store is asked, and what its answer means for each event.
///
/// A value without I/O: this is where duplicates inside a group, conflicts, refusals and expiry are decided.
struct CommitGroup {
    private let requests: [IngestRequest]
    private let horizon: Int32
    /// All rows of the group, sorted by key; rows with equal keys in the order of arrival.
    private let rows: [RowKey]
    private(set) var storeGroup: StoreGroup

    /// - Parameter horizon: See ``EventStore/horizon``.
    init(_ requests: [IngestRequest], horizon: Int32) {
        var rows: [RowKey] = []
        rows.reserveCapacity(requests.reduce(0) { $0 + $1.rows.keys.count })
        var lookups: [EventKey] = []
        for (number, request) in requests.enumerated() {
            for var row in request.rows.keys {
                row.batch = Int32(number)
                rows.append(row)
            }
            for refusal in request.refusals {
                if let id = refusal.id { lookups.append(EventKey(id: id, projectID: request.projectID)) }
            }
        }
        rows.sort(by: Self.areInOrder)
        var records: [RowKey] = []
        records.reserveCapacity(rows.count)
        var last: EventKey?
        for row in rows where row.key != last {
            last = row.key
            if Self.isExpired(row.key.id, horizon) { lookups.append(row.key) } else { records.append(row) }
        }
        self.requests = requests
        self.horizon = horizon
        self.rows = rows
        storeGroup = StoreGroup(
            records: records, in: requests.map(\.rows.bytes), lookups: Self.looked(lookups, records),
            reports: InstallReport.merged(requests.compactMap(\.report)), horizon: horizon)
        guard !storeGroup.reports.isEmpty else { return }
        storeGroup.entries = { [self] in entries(outcomes(found: $0)) }
    }

    // MARK: - Books

    /// What became of the numbers that installs have given, for each of the store group's reports.
    private func entries(_ outcomes: [IngestOutcome]) -> [InstallBook.Entry] {
        var entries = Dictionary(storeGroup.reports.map { ($0.key, InstallBook.Entry(report: $0)) }) { $1 }
        for (request, outcome) in zip(requests, outcomes) {
            guard let key = request.report?.key, var entry = entries.removeValue(forKey: key) else { continue }
            var results = outcome.results[...]
            for (index, sequence) in request.sequences.enumerated() {
                let result = results.first?.index == index ? results.popFirst() : nil
                if let result {
                    // What is to be sent again is with the install until then.
                    entry.ended[result.reason ?? result.outcome.rawValue, default: SequenceSet()].insert(sequence...sequence)
                } else {
                    entry.stored.insert(sequence...sequence)
                }
            }
            entries[key] = entry
        }
        return storeGroup.reports.compactMap { entries[$0.key] }
    }

    /// What is known of the installs' numbers only after the rows were committed: which of the repeats are conflicts; nil if there is nothing.
    ///
    /// - Parameter isSplit: Whether the group was committed in parts, which keep no books.
    func lateBooks(_ outcomes: [IngestOutcome], repeats: [RowKey], isSplit: Bool) -> StoreGroup? {
        guard !storeGroup.reports.isEmpty, isSplit || repeats.contains(where: { requests[Int($0.batch)].report != nil }) else { return nil }
        var entries = entries(outcomes)
        if !isSplit { for index in entries.indices { entries[index].stored = SequenceSet() } }
        var group = StoreGroup(records: [RowKey](), in: [], reports: storeGroup.reports)
        group.entries = { [entries] _ in entries }
        return group
    }

    // MARK: - Outcomes

    /// Whether another content under a row's id is a conflict.
    private func isCompared(_ row: RowKey) -> Bool { !row.key.id.isDerived || requests[Int(row.batch)].comparesDerived }

    private static func areInOrder(_ left: RowKey, _ right: RowKey) -> Bool {
        if left.key != right.key { return left.key < right.key }
        return (left.batch, left.entry) < (right.batch, right.entry)
    }

    /// The keys to look up: each once, sorted, without those of records.
    private static func looked(_ keys: [EventKey], _ records: [RowKey]) -> [EventKey] {
        guard !keys.isEmpty else { return [] }
        let stored = Set(records.map(\.key))
        return Set(keys).subtracting(stored).sorted()
    }

    private static func isExpired(_ id: EventID, _ horizon: Int32) -> Bool {
        let bucket = id.bucket
        return bucket >= 0 && bucket < horizon
    }

    /// The events whose id is known and whose bytes differ: only a comparison by value shows whether they are the same event.
    ///
    /// - Parameters:
    ///   - found: The fingerprints of what the store had before.
    ///   - refused: The records that the store could not hold.
    func repeats(found: [EventKey: Int64], refused: [EventKey: EventProblem] = [:]) -> [RowKey] {
        guard !found.isEmpty || storeGroup.records.count < rows.count else { return [] }
        var repeats: [RowKey] = []
        forEachKey { first, same in
            let stored = found[first.key]
            guard stored != nil || (same.count > 1 && refused[first.key] == nil && !Self.isExpired(first.key.id, horizon)) else { return }
            if stored == Tombstone.fingerprint { return }
            repeats += same.filter { $0.fingerprint != stored ?? first.fingerprint }
        }
        return repeats
    }

    /// The record of a row, and that of the first one with its key.
    func record(_ row: RowKey) -> EventRecord { storeGroup.record(row) }
    func first(like row: RowKey) -> EventRecord? { rows.first { $0.key == row.key }.map(record) }

    private func forEachKey(_ body: (RowKey, ArraySlice<RowKey>) -> Void) {
        var start = 0
        while start < rows.count {
            var end = start + 1
            while end < rows.count, rows[end].key == rows[start].key { end += 1 }
            body(rows[start], rows[start..<end])
            start = end
        }
    }

    /// What became of each event, for each request in order.
    ///
    /// - Parameters:
    ///   - found: The fingerprints of what the store had before.
    ///   - refused: The records that the store could not hold, and why.
    ///   - verdicts: For each of ``repeats(found:refused:)``, whether its values are the same; missing where that is not known.
    func outcomes(
        found: [EventKey: Int64], refused: [EventKey: EventProblem] = [:], verdicts: [RowKey.Place: Bool] = [:]
    ) -> [IngestOutcome] {
        var answers = requests.map { IngestOutcome(received: $0.count) }
        forEachKey { first, same in
            let isKnown = !found.isEmpty && found[first.key] != nil
            let problem = refused.isEmpty ? nil : refused[first.key]
            let isExpired = Self.isExpired(first.key.id, horizon)
            if same.count == 1, !isKnown, problem == nil, !isExpired { return }
            for row in same {
                var result = Receipt.Result(index: Int(row.entry), eventID: row.key.id, outcome: .duplicate)
                if isKnown || (problem == nil && !isExpired) {
                    if !isKnown, row.place == first.place { continue }
                    let stored = found[row.key] ?? first.fingerprint
                    if row.fingerprint != stored, stored != Tombstone.fingerprint, isCompared(row) {
                        switch verdicts[row.place] {
                        case true: break
                        case false: (result.outcome, result.detail) = (.conflict, "another content is stored under this id")
                        case nil: (result.outcome, result.detail) = (.retry, "it could not be compared with what is stored")
                        }
                    }
                } else if isExpired {
                    (result.outcome, result.detail) = (.expired, "older than what is still kept")
                } else if let problem, row.fingerprint == first.fingerprint {
                    (result.outcome, result.reason, result.detail) = (.rejected, problem.reason.rawValue, problem.detail)
                } else {
                    // The store refused another event under this id; this one has not been tried.
                    result.outcome = .retry
                }
                answers[Int(row.batch)].results.append(result)
            }
        }
        let stored = requests.contains { !$0.refusals.isEmpty } ? Set(storeGroup.records.map(\.key)) : []
        for (number, request) in requests.enumerated() {
            for refusal in request.refusals {
                var result = Receipt.Result(index: refusal.entry, eventID: refusal.id, outcome: .duplicate)
                let key = refusal.id.map { EventKey(id: $0, projectID: request.projectID) }
                if key.map({ found[$0] == nil && (!stored.contains($0) || refused[$0] != nil) }) ?? true {
                    (result.outcome, result.reason, result.detail) = (.rejected, refusal.problem.reason.rawValue, refusal.problem.detail)
                }
                answers[number].results.append(result)
            }
            answers[number].results.sort { $0.index < $1.index }
        }
        return answers
    }

    /// How many events came under a derived id that the store had with another content. They are duplicates by promise, but the stored one may
    /// be from another sender that has occupied the id.
    func derivedWithOtherContent(_ found: [EventKey: Int64], _ verdicts: [RowKey.Place: Bool]) -> Int {
        if verdicts.isEmpty { return 0 }
        return rows.count { !isCompared($0) && found[$0.key] != nil && verdicts[$0.place] == false }
    }
}
