import HapaxModel

/// Who has changed what, and when: the table `audit`. It holds no key, no event and nobody's id.
package struct AuditLog: Sendable {
    let database: any SQLStore

    package struct Entry: Sendable {
        package var id: Int64
        /// Unix milliseconds.
        package var at: Int64
        /// A key's number and name, or a user of a machine.
        package var actor: String
        /// nil for the command line and a key of the settings.
        package var keyID: Int32?
        /// As on the command line.
        package var verb: String
        /// Its name then.
        package var project: String?
        package var detail: String
    }

    private static let days: Int64 = 400
    /// What is too old is looked for among so many of the oldest entries: a change takes as long however many there are.
    private static let removedAtOnce = 1_000

    /// The statement that notes something.
    ///
    /// - Parameter isMade: Whether it has happened.
    func noting(_ entry: Entry, isMade: StoreSQL = "true") -> StoreSQL {
        let key: StoreSQL = entry.keyID.map { "\($0)" } ?? "NULL"
        let project: StoreSQL = entry.project.map { "\($0)" } ?? "NULL"
        return """
            INSERT INTO audit (at, key_id, actor, verb, project, detail)
            SELECT \(database.dialect.now(entry.at)), \(key), \(entry.actor), \(entry.verb), \(project), \(entry.detail) WHERE \(isMade)
            """
    }

    /// The statement that removes what is older than 400 days. As with events, a clock that is not believed removes nothing.
    func expiring() async throws(StoreError) -> StoreSQL {
        let end = try await database.clock().closing - Self.days * 86_400_000
        return """
            DELETE FROM audit WHERE audit_id IN (SELECT audit_id FROM audit ORDER BY audit_id LIMIT \(Self.removedAtOnce)) AND at < \(milliseconds: end)
            """
    }

    /// The latest entries, newest first, at most ``ServerLimits/auditEntries``.
    ///
    /// - Parameters:
    ///   - before: Only those before the one of that number.
    ///   - project: Only those of a project of that name.
    package func entries(before: Int64? = nil, project: String? = nil) async throws(StoreError) -> [Entry] {
        let named: StoreSQL = project.map { " AND project = \($0)" } ?? ""
        return try await database.ask(
            """
            SELECT audit_id, \(database.dialect.milliseconds("at")), actor, key_id, verb, project, detail FROM audit
            WHERE audit_id < \(before ?? .max)\(named) ORDER BY audit_id DESC LIMIT \(ServerLimits.auditEntries)
            """, as: .own
        ).map { (row) throws(StoreError) in
            // The columns are NOT NULL.
            Entry(
                id: try row.number(0), at: try row.number(1), actor: row[2] ?? "", keyID: row[3].flatMap { Int32($0) },
                verb: row[4] ?? "", project: row[5], detail: row[6] ?? "")
        }
    }
}

/// A store whose first change is noted in the same transaction: there is none without its entry.
struct AuditedStore: SQLStore {
    let base: any SQLStore
    let entry: AuditLog.Entry
    private let isNoted = Locked(false)

    init(_ base: any SQLStore, _ entry: AuditLog.Entry) { (self.base, self.entry) = (base, entry) }

    func change(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[String?]] {
        guard case .owner = purpose, !isNoted.withLock({ $0 }) else { return try await base.change(statements, as: purpose) }
        let log = AuditLog(database: base)
        let rows = try await base.change([try await log.expiring(), log.noting(entry)] + statements, as: purpose)
        isNoted.withLock { $0 = true }
        return rows
    }

    func change(_ statements: [StoreSQL], as purpose: Purpose, isMade: StoreSQL) async throws(StoreError) {
        let log = AuditLog(database: base)
        try await base.change([try await log.expiring()] + statements + [log.noting(entry, isMade: isMade)], as: purpose)
        isNoted.withLock { $0 = true }
    }

    var dialect: Dialect { base.dialect }
    func ask(_ statements: [StoreSQL], as purpose: Purpose) async throws(StoreError) -> [[[String?]]] {
        try await base.ask(statements, as: purpose)
    }
    func each(
        _ sql: StoreSQL, in turn: QuestionTurn, _ row: @escaping @Sendable ([String?]) -> Void
    ) async throws(StoreError) { try await base.each(sql, in: turn, row) }
    func clock() async throws(StoreError) -> StoreClock { try await base.clock() }
    func received(from: Int64, to: Int64, parts: SpanParts) async throws(StoreError) -> [StoreSQL] {
        try await base.received(from: from, to: to, parts: parts)
    }
    func exclusively(_ body: @Sendable () async throws(StoreError) -> Void) async throws(StoreError) { try await base.exclusively(body) }
    func tidy(_ tables: Set<String>) async throws(StoreError) { try await base.tidy(tables) }
    func clear(_ buckets: Range<Int32>) async throws(StoreError) { try await base.clear(buckets) }
}
