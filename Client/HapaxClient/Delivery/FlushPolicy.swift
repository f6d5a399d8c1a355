/// When to upload without being asked: by count, by interval, and at once for certain events (R17–R25).
///
/// A value. Times are readings of a monotonic clock.
struct FlushPolicy: Sendable {
    /// As they were set; less than 1 event acts as 1, and ``effectiveInterval`` is what acts (R20).
    private(set) var settings: UploadSettings
    private var lastUpload: Duration

    static let minimumInterval: Duration = .seconds(5)

    enum Action: Hashable {
        case upload
        case restartTimer(every: Duration)
        case stopTimer
    }

    init(_ settings: UploadSettings, now: Duration) {
        self.settings = settings
        lastUpload = now
    }

    var effectiveInterval: Duration? { settings.interval.map { max($0, Self.minimumInterval) } }

    /// Whether anything is uploaded that nobody asked for (R26).
    var uploadsByItself: Bool { settings.interval != nil }

    /// - Parameter network: nil for none.
    func allows(_ network: NetworkType?) -> Bool {
        network.map { settings.networks.contains($0) } ?? false
    }

    /// Events have been committed; checked here and not when they are tracked, since only what is stored can be sent (D4).
    ///
    /// - Parameters:
    ///   - depth: Events stored now, these included.
    ///   - immediate: Whether an immediate event is among them.
    mutating func eventsStored(depth: Int, immediate: Bool, network: NetworkType? = .wired, now: Duration) -> [Action] {
        guard let effectiveInterval, allows(network) else { return [] }
        guard immediate || depth >= max(settings.bulkSize, 1) || now - lastUpload >= effectiveInterval else { return [] }
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
    mutating func change(_ change: (inout UploadSettings) -> Void, now: Duration) -> [Action] {
        let old = settings.interval
        change(&settings)
        guard settings.interval != old else { return [] }
        guard let effectiveInterval else { return [.stopTimer] }
        lastUpload = now
        return [.upload, .restartTimer(every: effectiveInterval)]
    }
}
