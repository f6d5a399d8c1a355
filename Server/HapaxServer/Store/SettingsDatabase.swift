/// Reads and changes what can be set while servers run, in the tables that all of them share.
package protocol SettingsDatabase: Sendable {
    var dialect: ReportDialect { get }

    /// Rows of text, within seconds; NULL is nil.
    func rows(_ sql: StoreSQL) async throws(StoreError) -> [[String?]]

    /// The same for what takes as long as there are many rows.
    func slowRows(_ sql: StoreSQL) async throws(StoreError) -> [[String?]]

    /// What the serving role may change.
    func note(_ statement: StoreSQL) async throws(StoreError)

    /// Runs all statements in one transaction, under the role that owns the tables.
    ///
    /// - Returns: The rows of the last statement.
    /// - Throws: ``StoreError/notPermitted`` if the server has no such role.
    func change(_ statements: [StoreSQL]) async throws(StoreError) -> [[String?]]

    /// Gives back what changed rows have left behind in these tables, so that it is not kept in them any more.
    func tidy(_ tables: Set<String>) async throws(StoreError)

    /// Removes the events with ids of some days, below which there are none any more. The horizon is at their end already.
    func clear(_ buckets: Range<Int32>) async throws(StoreError)
}

extension SettingsDatabase {
    /// The same for statements that lock rows which groups lock, too, in whatever order: who collides with a group tries again.
    func changeInTurn(_ statements: [StoreSQL]) async throws(StoreError) -> [[String?]] {
        for _ in 0..<ServerLimits.collisions {
            do throws(StoreError) { return try await change(statements) } catch { guard error == .collided else { throw error } }
        }
        return try await change(statements)
    }
}
