import HapaxModel

/// The users whose `distinct_id` begins with a text (docs/reading.md, `/v1/users`).
struct UserSearch: Sendable {
    var projectID: Int32
    var prefix: String
    var limit: Int

    struct Found: Sendable {
        /// By their bytes, at most as many as were asked for.
        var users: [String] = []
        var isCut = false
        /// Unix seconds: what was received before has not been searched. nil: all has.
        var searchedTo: Int64?
    }

    private static let firstSpan: Int64 = 86_400

    /// First those who have started an app, whom an index knows; then back in time, in growing steps, as far as the deadline allows.
    func find(_ database: any SQLStore, in turn: QuestionTurn) async throws(StoreError) -> Found {
        // The last character of all: no id that anybody gives goes on with it.
        let matches: StoreSQL = "project_id = \(projectID) AND distinct_id >= \(prefix) AND distinct_id < \(prefix + "\u{10FFFF}")"
        var users: Set<[UInt8]> = []
        func add(_ source: StoreSQL) async throws(StoreError) {
            let rows = try await database.ask(
                "SELECT DISTINCT distinct_id FROM \(source) ORDER BY distinct_id LIMIT \(limit + 1)", as: .question(turn))
            users.formUnion(rows.compactMap { $0[0].map { Array($0.utf8) } })
        }
        try await add("report_users WHERE \(matches)")
        var found = Found()
        // By the store's own clock, and before its present.
        let settled = try await database.settled() / 1_000
        var (to, span) = (settled + Self.firstSpan, 2 * Self.firstSpan)
        while users.count <= limit, to > 0 {
            let from = max(to - span, 0)
            do throws(StoreError) {
                if let received = try await database.received(from: from, to: to, parts: .question).first {
                    try await add("kept_events WHERE \(matches) AND \(received)")
                }
            } catch .tooHeavy {
                break
            }
            (to, span) = (from, span * 4)
        }
        found.searchedTo = to > 0 ? min(to, settled) : nil
        found.isCut = users.count > limit
        found.users = users.sorted { $0.lexicographicallyPrecedes($1) }.prefix(limit).map { String(decoding: $0, as: UTF8.self) }
        return found
    }
}
