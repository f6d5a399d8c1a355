import HapaxModel

/// What the books of a project's installs come to: whether every number that was given has an end.
package struct Trust: Sendable {
    /// Installs without a number of their own are not in it: of what they have sent only what arrived is known.
    package var installs: Int64 = 0
    /// When the first and the last of them was heard from, in Unix milliseconds.
    package var heardFrom: Int64?
    package var heardTo: Int64?
    /// Of all installs whose book is known.
    package var figures = InstallBook.Figures()
    package var repeated: Int64 = 0
    package var unknown = Part()
    /// Installs with something that waits, and of these those that have been silent for ``silence``.
    package var waiting = Part()
    package var unheard = Part()
    /// The same of browsers, which are not among them: many never come back, and nothing is wrong then.
    package var vanished = Part()
    /// When the longest silent of ``waiting`` was heard from.
    package var waitingSince: Int64?
    package var reasons: [Reason] = []
    /// Those with the most missing, at most ``shown``.
    package var losses: [Install] = []

    package struct Part: Sendable {
        package var installs: Int64 = 0
        package var events: Int64 = 0
    }

    package struct Reason: Sendable {
        package var reason: String
        package var isOfClient: Bool
        package var events: Int64
        /// Unix milliseconds.
        package var since: Int64
    }

    package struct Install: Sendable {
        package var id: EventID
        /// Unix milliseconds.
        package var heardAt: Int64
        package var book: InstallBook
    }

    /// What waits at an install that has been silent for longer may never come, in milliseconds.
    static let silence: Int64 = 7 * 86_400_000
    static let shown = 100
    /// Of so many installs the reasons are added up.
    static let readForReasons = 1_000

    enum Verdict: String {
        case balanced, missing, unheard, unknown
    }

    var verdict: Verdict {
        if figures.missing > 0 { return .missing }
        if installs == 0 || unknown.installs > 0 { return .unknown }
        return unheard.installs > 0 ? .unheard : .balanced
    }

    enum Order: String, CaseIterable {
        case heard, missing, waiting, silent
    }
}

/// Reads books.
struct TrustReader: Sendable {
    let database: any SQLStore
    let projectID: Int32
    let purpose: Purpose

    private var ms: @Sendable (StoreSQL) -> StoreSQL { database.dialect.milliseconds }

    /// `hapax.js` gives its installs ids of version 8, all others have such of version 4 or 7.
    private var isBrowser: StoreSQL { "substr(\(database.dialect.uuidText("install_id")), 15, 1) = '8'" }

    /// - Parameter since: Of installs heard from since then, in Unix milliseconds.
    func trust(since: Int64, now: Int64) async throws(StoreError) -> Trust {
        let chosen: StoreSQL = "FROM installs WHERE project_id = \(projectID) AND heard_at >= \(milliseconds: since)"
        let silent: StoreSQL = "events_waiting > 0 AND heard_at < \(milliseconds: now - Trust.silence)"
        let row =
            try await database.ask(
                """
                SELECT count(*), \(ms("min(heard_at)")), \(ms("max(heard_at)")), sum(events_given) FILTER (WHERE NOT is_unknown), sum(events_stored),
                  sum(events_duplicates), sum(events_refused), sum(events_discarded), sum(events_waiting), sum(events_missing), sum(repeated),
                  count(*) FILTER (WHERE is_unknown), sum(events_given) FILTER (WHERE is_unknown), count(*) FILTER (WHERE events_waiting > 0),
                  \(ms("min(heard_at) FILTER (WHERE events_waiting > 0 AND NOT \(isBrowser))")),
                  count(*) FILTER (WHERE \(silent) AND NOT \(isBrowser)), sum(events_waiting) FILTER (WHERE \(silent) AND NOT \(isBrowser)),
                  count(*) FILTER (WHERE \(silent) AND \(isBrowser)), sum(events_waiting) FILTER (WHERE \(silent) AND \(isBrowser))
                \(chosen)
                """,
                as: purpose
            ).first ?? []
        let numbers = row.map { $0.flatMap { Int64($0) } }
        // A number that cannot be read is no zero.
        guard numbers.count == 19, zip(row, numbers).allSatisfy({ ($0 == nil) == ($1 == nil) }) else {
            throw .unavailable("the books cannot be read")
        }
        func count(_ index: Int) -> Int64 { numbers[index] ?? 0 }
        var trust = Trust()
        (trust.installs, trust.heardFrom, trust.heardTo) = (count(0), numbers[1], numbers[2])
        trust.figures = InstallBook.Figures(
            given: count(3), stored: count(4), duplicates: count(5), refused: count(6), discarded: count(7), waiting: count(8),
            missing: count(9))
        trust.repeated = count(10)
        trust.unknown = .init(installs: count(11), events: count(12))
        trust.waiting = .init(installs: count(13), events: count(8))
        trust.waitingSince = numbers[14]
        trust.unheard = .init(installs: count(15), events: count(16))
        trust.vanished = .init(installs: count(17), events: count(18))
        if trust.figures.refused > 0 || trust.figures.discarded > 0 {
            trust.reasons = try await reasons("\(chosen) AND events_refused + events_discarded > 0")
        }
        if trust.figures.missing > 0 { trust.losses = try await installs(.missing, limit: Trust.shown, since: since) }
        return trust
    }

    /// The commonest ones. Reasons come from senders: they are not read of all installs.
    private func reasons(_ chosen: StoreSQL) async throws(StoreError) -> [Trust.Reason] {
        let rows = try await database.ask(
            "SELECT fates \(chosen) ORDER BY heard_at DESC LIMIT \(Trust.readForReasons)", as: purpose)
        var reasons: [String: Trust.Reason] = [:]
        // One that cannot be read is among the unknown ones.
        for fate in rows.flatMap({ InstallBook.fates($0[0]) ?? [] }) where !fate.isDuplicate && !fate.isRetry {
            let name = "\(fate.isOfClient) \(fate.reason)"
            var reason = reasons[name] ?? .init(reason: fate.reason, isOfClient: fate.isOfClient, events: 0, since: fate.first)
            reason.events += fate.sequences.upperBound - fate.sequences.lowerBound + 1
            reason.since = min(reason.since, fate.first)
            reasons[name] = reason
        }
        return Array(reasons.values.sorted { ($1.events, $0.reason) < ($0.events, $1.reason) }.prefix(Trust.shown))
    }

    func installs(_ order: Trust.Order, limit: Int, since: Int64) async throws(StoreError) -> [Trust.Install] {
        let chosen: StoreSQL = "FROM installs WHERE project_id = \(projectID) AND heard_at >= \(milliseconds: since)"
        return switch order {
        // Who has never sent an event has hardly lost one.
        case .missing:
            try await installs(
                "\(chosen) AND events_missing > 0 ORDER BY events_stored > 0 DESC, events_missing DESC, install_id LIMIT \(limit)")
        case .waiting: try await installs("\(chosen) AND events_waiting > 0 ORDER BY events_waiting DESC, install_id LIMIT \(limit)")
        case .heard: try await installs("\(chosen) ORDER BY heard_at DESC, install_id LIMIT \(limit)")
        case .silent: try await installs("\(chosen) ORDER BY heard_at, install_id LIMIT \(limit)")
        }
    }

    func install(_ id: EventID) async throws(StoreError) -> Trust.Install? {
        try await installs(chosen(id)).first
    }

    func chosen(_ id: EventID) -> StoreSQL { "FROM installs WHERE project_id = \(projectID) AND install_id = \(database.dialect.uuid(id))" }

    /// Those with something missing, in the order of their ids.
    ///
    /// - Parameter last: Where the part before ended.
    func losses(after last: EventID?, limit: Int) async throws(StoreError) -> [Trust.Install] {
        let rest: StoreSQL = last.map { "AND install_id > \(database.dialect.uuid($0))" } ?? ""
        return try await installs(
            "FROM installs WHERE project_id = \(projectID) AND events_missing > 0 \(rest) ORDER BY install_id LIMIT \(limit)")
    }

    private func installs(_ chosen: StoreSQL) async throws(StoreError) -> [Trust.Install] {
        let columns = InstallBook.columns.map { $0 == "missing_since" ? ms("missing_since") : StoreSQL(stringLiteral: $0) }
        let list = columns.dropFirst().reduce(columns[0]) { "\($0), \($1)" }
        return try await database.ask(
            "SELECT \(database.dialect.uuidText("install_id")), \(ms("heard_at")), \(list) \(chosen)",
            as: purpose
        ).map { (row) throws(StoreError) in
            guard let id = row[0].flatMap({ EventID(uuidString: $0) }) else { throw .unavailable("an install's id cannot be read") }
            return Trust.Install(id: id, heardAt: try row.number(1), book: InstallBook(row[2...]) ?? .unreadable)
        }
    }
}
