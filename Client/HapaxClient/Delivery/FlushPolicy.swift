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
    /// Over which networks an upload may begin (R24).
    var networkPolicy: NetworkPolicy
    /// ``setPreset(_:now:)`` changes it.
    private(set) var preset: UploadPreset
    /// ``setAutomatic(_:now:)`` changes it.
    private(set) var isAutomatic: Bool
    private var lastUpload: Duration

    static let minimumInterval: Duration = .seconds(5)

    enum Action: Hashable {
        case upload
        case restartTimer(every: Duration)
        case stopTimer
    }

    init(
        bulkSize: Int, interval: Duration, immediateEvents: Set<String>, networkPolicy: NetworkPolicy = .standard,
        preset: UploadPreset = .standard, isAutomatic: Bool = true, now: Duration
    ) {
        self.isAutomatic = isAutomatic
        self.networkPolicy = networkPolicy
        self.preset = preset
        self.bulkSize = bulkSize
        self.interval = interval
        self.immediateEvents = immediateEvents
        lastUpload = now
    }

    /// nil: no automatic uploads (R26).
    var effectiveInterval: Duration? {
        if !isAutomatic || (preset == .dispatch && interval < .seconds(1)) { return nil }
        return max(interval, Self.minimumInterval)
    }

    /// Whether anything is uploaded that nobody asked for (R26).
    var uploadsByItself: Bool { effectiveInterval != nil }

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

    /// Begins with the preset's interval, which acts like any other.
    mutating func setPreset(_ preset: UploadPreset, now: Duration) -> [Action] {
        guard preset != self.preset else { return [] }
        self.preset = preset
        return setInterval(preset.interval, now: now)
    }

    /// - Returns: A different interval flushes now and restarts the timer; the same does nothing (R22). One that switches uploads off
    ///   sends nothing.
    mutating func setInterval(_ interval: Duration, now: Duration) -> [Action] {
        guard interval != self.interval else { return [] }
        self.interval = interval
        return intervalChanged(now: now)
    }

    /// As with an interval: what is switched on begins now.
    mutating func setAutomatic(_ isAutomatic: Bool, now: Duration) -> [Action] {
        guard isAutomatic != self.isAutomatic else { return [] }
        self.isAutomatic = isAutomatic
        return intervalChanged(now: now)
    }

    private mutating func intervalChanged(now: Duration) -> [Action] {
        guard let effectiveInterval else { return [.stopTimer] }
        lastUpload = now
        return [.upload, .restartTimer(every: effectiveInterval)]
    }
}
