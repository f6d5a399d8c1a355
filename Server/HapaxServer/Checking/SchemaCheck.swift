/// What the next start of this version would do to a store.
enum SchemaCheck {
    /// By the part of a migration's name that both stores share.
    private static let changes = [
        "store": "makes the tables",
        "reads": "makes the reports' tables and indexes of all events, for which commits wait",
        "months": "turns the last partition into one for all that have none; senders wait a moment",
        "keys": "makes the table of keys",
        "erasures": "makes the table of erasures, and a view without erased events",
        "limits": "adds a column to the projects",
        "retention": "makes room for how long events are kept",
        "backups": "makes the table of backups",
    ]

    static func finding(applied: [String], known: [String]) -> Finding {
        if applied.isEmpty { return .warn("schema", "there is none yet; the first start makes it") }
        if let stranger = applied.sorted().first(where: { !known.contains($0) }) {
            return .fail(
                "schema", "it is newer than this program, or older than the first release: it has had \(stranger)",
                help: "run the version that made it, or a later one")
        }
        let missing = known.filter { !applied.contains($0) }
        if missing.isEmpty { return .ok("schema", "up to date (\(known.last ?? ""))") }
        let texts = missing.map { name in "\(name) (\(changes[String(name.split(separator: "_").last ?? "")] ?? ""))" }
        return .warn(
            "schema", "the next start of this version applies \(texts.joined(separator: ", "))",
            help: "take a backup before, and start all servers with this version")
    }
}
