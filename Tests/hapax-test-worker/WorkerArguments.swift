import HapaxClient

/// `track` or `drain`, and `--name value` pairs.
struct WorkerArguments: Sendable {
    enum Command: String, Sendable {
        case track
        case drain
    }

    struct Usage: Error, CustomStringConvertible {
        let description: String
    }

    var command: Command
    var server = ""
    var key = ""
    var queue = ""
    var durability = Durability.process
    /// Events to track; nil for ever.
    var count: Int?
    var threads = 1
    var durably = false
    var bulkSize = 50
    /// Seconds.
    var within = 30
    /// Of the run; each event then carries a `mark` of run, thread and index, and the reports name it, too.
    var label: String?
    /// Bytes that some events hold beside that, at most.
    var fill = 0
    /// Shows events where debug mode does.
    var debugs = false

    init(_ arguments: [String]) throws(Usage) {
        guard let first = arguments.first, let command = Command(rawValue: first) else { throw Usage(description: "track or drain") }
        self.command = command
        var rest = arguments.dropFirst()
        while let name = rest.popFirst() {
            switch name {
            case "--durably":
                durably = true
                continue
            case "--debug":
                debugs = true
                continue
            default: break
            }
            guard let value = rest.popFirst() else { throw Usage(description: "\(name) wants a value") }
            switch name {
            case "--server": server = value
            case "--key": key = value
            case "--queue": queue = value
            case "--level":
                guard let level = Durability(rawValue: value) else { throw Usage(description: "--level process|power") }
                durability = level
            case "--count": count = try Self.number(name, value)
            case "--threads": threads = try Self.number(name, value)
            case "--bulk": bulkSize = try Self.number(name, value)
            case "--label": label = value
            case "--fill": fill = try Self.number(name, value)
            case "--within": within = try Self.number(name, value)
            default: throw Usage(description: "unknown option \(name)")
            }
        }
    }

    private static func number(_ name: String, _ text: String) throws(Usage) -> Int {
        guard let number = Int(text), number > 0 else { throw Usage(description: "\(name) wants a positive number") }
        return number
    }
}
