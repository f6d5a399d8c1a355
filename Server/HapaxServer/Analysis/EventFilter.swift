import HapaxModel

/// Which events a question is about: those of a name, or of all, that have certain properties.
struct EventFilter: Hashable, Sendable {
    /// nil: whatever they are called.
    var name: String?
    var properties: [PropertyFilter] = []

    /// A condition for the rows of one project, beginning with AND; nothing without a filter.
    func condition(_ dialect: Dialect) -> StoreSQL {
        let ofName: StoreSQL = name.map { " AND event = \($0)" } ?? ""
        return properties.reduce(ofName) { sql, filter in
            let texts = filter.texts.map(dialect.valueOf)
            return "\(sql) AND \(dialect.value(filter.name)) IN (\(texts.dropFirst().reduce(texts[0]) { "\($0), \($1)" }))"
        }
    }
}
