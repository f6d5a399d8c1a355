/// What the next start of this version would do to a store.
enum SchemaCheck {
    /// - Parameters:
    ///   - known: The migrations of this version, in their order.
    ///   - rows: How many rows a table has, about; nil for a table that is not there yet.
    static func finding(
        applied: [String], known: [(name: String, change: SchemaChange)], rows: (String) async throws(StoreError) -> Int64?
    ) async throws(StoreError) -> Finding {
        if applied.isEmpty { return .warn("schema", "there is none yet; the first start makes it") }
        if let stranger = applied.sorted().first(where: { name in !known.contains { $0.name == name } }) {
            return .fail(
                "schema", "it is newer than this program, or older than the first release: it has had \(stranger)",
                help: "run the version that made it, or a later one")
        }
        let missing = known.filter { !applied.contains($0.name) }
        if missing.isEmpty { return .ok("schema", "up to date (\(known.last?.name ?? ""))") }
        var texts: [String] = []
        for migration in missing { texts.append("\(migration.name) (\(try await migration.change.described(rows)))") }
        return .warn(
            "schema", "the next start of this version applies \(texts.joined(separator: ", "))",
            help: "take a backup before, and start all servers with this version")
    }
}
