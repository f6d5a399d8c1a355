/// When to upload without being asked: by count, by interval, and at once for certain events (R17–R25).
///
/// A value. Times are readings of a monotonic clock.
struct FlushPolicy: Sendable {
    /// Stored events from which an upload is due; less than 1 acts as 1.
    var bulkSize: Int
    /// As it was set; ``effectiveInterval`` is what acts (R20).
    private(set) var interval: Duration
    /// Names of events that are uploaded as soon as they are stored.
    var immediateEvents: Set<String>
    private var lastUpload: Duration

    static let minimumInterval: Duration = .seconds(5)

    enum Action: Hashable {
        case upload
        case restartTimer(every: Duration)
    }

    init(bulkSize: Int, interval: Duration, immediateEvents: Set<String>, now: Duration) {
        self.bulkSize = bulkSize
        self.interval = interval
        self.immediateEvents = immediateEvents
        lastUpload = now
    }

    var effectiveInterval: Duration { max(interval, Self.minimumInterval) }

    /// Events have been committed; checked here and not when they are tracked, since only what is stored can be sent (D4).
    ///
    /// - Parameters:
    ///   - depth: Events stored now, these included.
    ///   - immediate: Whether an immediate event is among them.
    mutating func eventsStored(depth: Int, immediate: Bool, now: Duration) -> [Action] {
        guard immediate || depth >= max(bulkSize, 1) || now - lastUpload >= effectiveInterval else { return [] }
        lastUpload = now
        return [.upload]
    }

    /// The periodic timer has fired.
    mutating func timerFired(depth: Int, now: Duration) -> [Action] {
        guard depth > 0, now - lastUpload >= effectiveInterval else { return [] }
        lastUpload = now
        return [.upload]
    }

    /// - Returns: A different interval flushes now and restarts the timer; the same does nothing (R22).
    mutating func setInterval(_ interval: Duration, now: Duration) -> [Action] {
        guard interval != self.interval else { return [] }
        self.interval = interval
        lastUpload = now
        return [.upload, .restartTimer(every: effectiveInterval)]
    }
}
