import HapaxModel

/// How many events with derived ids came with keys that are no server keys: who takes them from server keys only
/// (``Registry/DerivedIDs``) sees first what would be refused then. A value without clock or lock.
struct DerivedIDCounts: Sendable {
    struct Source: Hashable, Sendable {
        var projectID: Int32
        /// nil for a key of the settings.
        var keyID: Int32?
        var name: String
    }

    /// Names come from whoever has a write key; beyond these they are counted together.
    static let maximumSources = 200
    /// For so many days what came is kept.
    static let days: Int32 = 14

    private var counts: [Source: Int64] = [:]

    mutating func add(_ names: [[UInt8]: Int], _ projectID: Int32, keyID: Int32?) {
        for (name, count) in names {
            var source = Source(projectID: projectID, keyID: keyID, name: String(decoding: name, as: UTF8.self))
            if counts[source] == nil, counts.count >= Self.maximumSources { source.name = "" }
            counts[source, default: 0] += Int64(count)
        }
    }

    mutating func take() -> [Source: Int64] {
        defer { counts = [:] }
        return counts
    }
}
