/// What a migration does to a store that is in use, for `hapax-server check --upgrade`.
struct SchemaChange: Sendable, ExpressibleByStringLiteral {
    /// What it does, and who waits for it.
    var text: String
    /// The tables of which it writes or reads all rows.
    var tables: [String] = []

    init(_ text: String, all tables: String...) { (self.text, self.tables) = (text, tables) }
    init(stringLiteral text: String) { self.text = text }

    /// Rows that one second takes at least, on a slow disk.
    private static let rowsPerSecond: Int64 = 50_000

    /// - Parameter rows: How many rows a table has, about; nil for a table that is not there yet.
    func described(_ rows: (String) async throws(StoreError) -> Int64?) async throws(StoreError) -> String {
        var parts = [text]
        for table in tables {
            guard let rows = try await rows(table) else { continue }
            let seconds = max(1, rows / Self.rowsPerSecond)
            parts.append("about \(rows) rows of \(table), at most \(seconds) \(seconds == 1 ? "second" : "seconds")")
        }
        return parts.joined(separator: "; ")
    }
}
