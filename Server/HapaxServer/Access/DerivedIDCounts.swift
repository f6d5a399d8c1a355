import HapaxModel

/// What becomes of events with derived ids.
enum DerivedIDRule: Sendable {
    case taken, counted, refused
}

/// How many events with derived ids came with keys that are no server keys: who takes them from server keys only
/// (``Registry/DerivedIDs``) sees first what would be refused then. A value without clock or lock.
struct DerivedIDCounts: Sendable {
    struct Source: Hashable, Sendable {
        var projectID: Int32
        /// nil for a key of the settings.
        var keyID: Int32?
        var name: String
    }

    /// Names come from anybody with a write key: beyond these, of a project and day, they are counted together, under no name.
    static let maximumSources = 200
    /// What is read of a project at most.
    static let readRows = 10_000
    /// For so many days what came is kept.
    static let days: Int32 = 14

    private var counts: [Source: Int64] = [:]

    mutating func add(_ names: [[UInt8]: Int], _ projectID: Int32, keyID: Int32?) {
        for (name, count) in names {
            add([Source(projectID: projectID, keyID: keyID, name: String(decoding: name, as: UTF8.self)): Int64(count)])
        }
    }

    mutating func add(_ others: [Source: Int64]) {
        for (source, count) in others {
            var source = source
            if counts[source] == nil, counts.count >= Self.maximumSources { source.name = "" }
            counts[source, default: 0] += count
        }
    }

    mutating func take() -> [Source: Int64] {
        defer { counts = [:] }
        return counts
    }
}
