/// When to upload without being asked: by count, by interval, and at once for certain events (R17–R25).
///
/// A value. Times are readings of a monotonic clock.
struct FlushPolicy: Sendable {
    /// Stored events from which an upload is due; less than 1 acts as 1.
    var bulkSize: Int
    /// As it was set; ``effectiveInterval`` is what acts (R20). nil: nothing is uploaded that nobody asked for (R26).
    private(set) var interval: Duration?
    /// Names of events that are uploaded as soon as they are stored.
    var immediateEvents: Set<String>
    /// Over which networks an upload may begin (R24).
    var networkPolicy: NetworkPolicy
    private var lastUpload: Duration

    static let minimumInterval: Duration = .seconds(5)

    enum Action: Hashable {
        case upload
        case restartTimer(every: Duration)
        case stopTimer
    }

    init(
        bulkSize: Int, interval: Duration?, immediateEvents: Set<String>, networkPolicy: NetworkPolicy = .standard, now: Duration
    ) {
        self.networkPolicy = networkPolicy
        self.bulkSize = bulkSize
        self.interval = interval
        self.immediateEvents = immediateEvents
        lastUpload = now
    }

    var effectiveInterval: Duration? { interval.map { max($0, Self.minimumInterval) } }

    /// Whether anything is uploaded that nobody asked for (R26).
    var uploadsByItself: Bool { interval != nil }

    /// - Parameter network: nil for none.
    func allows(_ network: NetworkType?) -> Bool {
        network.map { networkPolicy.contains($0) } ?? false
    }

    /// Events have been committed; checked here and not when they are tracked, since only what is stored can be sent (D4).
    ///
    /// - Parameters:
    ///   - depth: Events stored now, these included.
    ///   - immediate: Whether an immediate event is among them.
    mutating func eventsStored(depth: Int, immediate: Bool, network: NetworkType? = .wired, now: Duration) -> [Action] {
        guard let effectiveInterval, allows(network) else { return [] }
        guard immediate || depth >= max(bulkSize, 1) || now - lastUpload >= effectiveInterval else { return [] }
        lastUpload = now
        return [.upload]
    }

    /// The periodic timer has fired.
    mutating func timerFired(depth: Int, network: NetworkType? = .wired, now: Duration) -> [Action] {
        guard let effectiveInterval, allows(network), depth > 0, now - lastUpload >= effectiveInterval else { return [] }
        lastUpload = now
        return [.upload]
    }

    /// - Returns: A different interval flushes now and restarts the timer; the same does nothing (R22). One that switches uploads off
    ///   sends nothing.
    mutating func setInterval(_ interval: Duration?, now: Duration) -> [Action] {
        guard interval != self.interval else { return [] }
        self.interval = interval
        guard let effectiveInterval else { return [.stopTimer] }
        lastUpload = now
        return [.upload, .restartTimer(every: effectiveInterval)]
    }
}
