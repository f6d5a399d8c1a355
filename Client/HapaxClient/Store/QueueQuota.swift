/// How much one queue may hold on disk: waiting events and dead letters together. What it costs is counted in ``EventClient/Status/dropped``.
///
/// Dead letters take a quarter of it at most, so that they never stop the intake: beyond that the oldest is removed (`quota_dead_letter`).
///
/// It keeps the queue far below the disk's size, so that other programs and the queue's own upkeep still find room (I13).
public struct QueueQuota: Sendable, Hashable {
    /// What happens to an event for which there is no room.
    public enum Policy: Sendable, Hashable {
        /// It is refused: `track` returns nil, `trackDurably` throws, it takes no sequence, and it is counted as `quota_full`.
        case reject
        /// It is taken, and room is made by removing dead letters first (`quota_dead_letter`), then the oldest waiting events (`quota_oldest`).
        case dropOldest
    }

    /// Events and dead letters together, from 1; nil for no limit.
    public var maximumEvents: Int?
    /// Bytes of events and dead letters as they travel, from 1; nil for no limit. The file is larger by about a quarter.
    ///
    /// What still waits in memory counts by an estimate that leaves out characters JSON has to escape.
    public var maximumBytes: Int? = Self.standardBytes
    /// Whatever the policy is, the oldest waiting events are removed when their `time` is longer ago than this, and counted as `quota_age`.
    /// Looked at when events are stored and when uploads begin; nil, the default, keeps them for ever.
    public var maximumAge: Duration?
    /// What happens when it is full.
    public var policy = Policy.reject

    #if os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)
    private static let standardBytes = 64 * 1024 * 1024
    #else
    private static let standardBytes = 512 * 1024 * 1024
    #endif

    /// 512 MiB, 64 MiB on phones and their kin, without a limit on events and age; what does not fit is refused.
    public init() {}

    /// Holds whatever comes.
    package static var unlimited: QueueQuota {
        var quota = QueueQuota()
        quota.maximumBytes = nil
        return quota
    }

    func allows(_ usage: QueueUsage) -> Bool {
        usage.events <= maximumEvents.map(Int64.init) ?? .max && usage.bytes <= maximumBytes.map(Int64.init) ?? .max
    }

    /// Whether dead letters keep within their share. One may always stay, if it is not too large.
    func allowsDeadLetters(_ usage: QueueUsage) -> Bool {
        usage.events <= maximumEvents.map { max(Int64($0) / 4, 1) } ?? .max && usage.bytes <= maximumBytes.map { Int64($0) / 4 } ?? .max
    }

    /// The time before which an event is too old, in Unix milliseconds.
    func oldestTime(now: Int64) -> Int64? {
        // No event is so old, and it is nearly all that counts as milliseconds.
        guard let maximumAge, maximumAge < .seconds(1 << 53) else { return nil }
        let (seconds, attoseconds) = max(maximumAge, .zero).components
        let time = now.subtractingReportingOverflow(seconds * 1_000 + attoseconds / 1_000_000_000_000_000)
        return time.overflow ? nil : time.partialValue
    }
}

/// What a queue holds, dead letters included.
struct QueueUsage: Hashable, Sendable {
    var events: Int64 = 0
    var bytes: Int64 = 0

    static func + (left: QueueUsage, right: QueueUsage) -> QueueUsage {
        QueueUsage(events: left.events + right.events, bytes: left.bytes + right.bytes)
    }

    static func - (left: QueueUsage, right: QueueUsage) -> QueueUsage {
        QueueUsage(events: left.events - right.events, bytes: left.bytes - right.bytes)
    }
}

/// Why events that had been stored were removed unsent, as it stands in `dropped`.
enum RemovalReason: String, CaseIterable {
    case age = "quota_age"
    case oldest = "quota_oldest"
    case deadLetter = "quota_dead_letter"
}
