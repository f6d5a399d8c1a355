import HapaxModel

/// Decides whether there is room for one more event: what is on disk, and what has been promised to events that wait for their commit.
///
/// A value; commits and reservations change it by differences, so that it is right in whatever order they come.
struct QuotaAccount: Sendable {
    let quota: QueueQuota
    private(set) var used: QueueUsage
    private(set) var reserved = QueueUsage()

    init(quota: QueueQuota, used: QueueUsage) {
        self.quota = quota
        self.used = used
    }

    /// Takes room for an event.
    ///
    /// - Returns: false if there is none and the policy is to refuse.
    mutating func reserve(_ event: QueueUsage) -> Bool {
        let wanted = reserved + event
        guard quota.policy == .dropOldest || quota.allows(used + wanted) else { return false }
        reserved = wanted
        return true
    }

    /// - Parameters:
    ///   - change: What a commit did to what is on disk.
    ///   - released: Reservations of the events that it stored.
    mutating func committed(_ change: QueueUsage, releasing released: QueueUsage) {
        used = used + change
        reserved = reserved - released
    }
}

/// What an event will take, as far as that is known without encoding it.
extension QueueUsage {
    /// What an event takes besides its properties: its own two texts, the names of the fields, the id and the numbers.
    static func bytes(_ name: String, _ distinctID: String) -> Int64 {
        Int64(134 + name.utf8.count + distinctID.utf8.count)
    }

    static func bytes(of properties: Properties) -> Int64 {
        Int64(properties.members.reduce(properties.jsonOfProblem?.count ?? 0) { $0 + $1.key.utf8.count + 4 + bytes($1.value, depth: 3) })
    }

    private static func bytes(_ value: PropertyValue, depth: Int) -> Int {
        // Deeper ones are refused anyway, and recursion must end.
        if depth > EventLimits.maximumDepth { return 0 }
        switch value {
        case .null, .bool(true): return 4
        case .bool(false): return 5
        case .integer, .double: return 8
        case .string(let text), .number(let text): return text.utf8.count + 2
        case .array(let elements): return elements.reduce(2) { $0 + 1 + bytes($1, depth: depth + 1) }
        case .object(let properties): return properties.reduce(2) { $0 + $1.key.utf8.count + 4 + bytes($1.value, depth: depth + 1) }
        }
    }
}
