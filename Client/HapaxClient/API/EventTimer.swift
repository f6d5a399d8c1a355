import HapaxModel

/// Measures how long something takes, on a monotonic clock; ``EventClient/startTimer(_:)`` makes it.
///
/// It lives in memory: one that runs when the process ends is lost, and so is one that nobody keeps. It stands still while the app is in the
/// background, unless it is started or resumed there. Any number may have the same name.
public final class EventTimer: Sendable {
    private let name: String
    private let client: EventClient
    private let clock: any ClientClock
    /// nil once it has ended.
    private let stopwatch: Locked<Stopwatch?>

    init(_ name: String, _ client: EventClient, _ clock: any ClientClock) {
        (self.name, self.client, self.clock) = (name, client, clock)
        stopwatch = Locked(Stopwatch(now: clock.monotonic))
    }

    deinit { client.timers.remove(self) }

    /// Stops the measuring for a while.
    public func pause() { change { $0.pause(now: $1) } }

    /// Goes on measuring; changes nothing if it runs.
    public func resume() { change { $0.resume(now: $1) } }

    /// Ends it and tracks the event of its name, with `$event_duration` in seconds. For what may be lost see
    /// ``EventClient/track(_:properties:id:time:distinctID:)``.
    ///
    /// - Parameters:
    ///   - properties: A `$event_duration` among them wins.
    ///   - id: As `track` takes it.
    ///   - distinctID: As `track` takes it.
    /// - Returns: As `track` does; nil also if it had ended before: then nothing is tracked.
    @discardableResult
    public func end(properties: Properties = [:], id: EventID = .made, distinctID: String? = nil) -> EventID? {
        let now = clock.monotonic
        let measured = stopwatch.withLock { stopwatch in
            defer { stopwatch = nil }
            return stopwatch?.end(now: now)
        }
        guard let measured else { return nil }
        client.timers.remove(self)
        var properties = properties
        if properties["$event_duration"] == nil { properties["$event_duration"] = measured.eventDuration }
        return client.track(name, properties: properties, id: id, distinctID: distinctID)
    }

    func change(_ change: (inout Stopwatch, _ now: Duration) -> Void) {
        let now = clock.monotonic
        stopwatch.withLock { stopwatch in
            guard var running = stopwatch else { return }
            change(&running, now)
            stopwatch = running
        }
    }
}

/// The timers that somebody keeps, for the app's way into the background and back.
final class EventTimers: Sendable {
    private struct Weak {
        weak var timer: EventTimer?
    }

    private let timers = Locked<[ObjectIdentifier: Weak]>([:])

    func add(_ timer: EventTimer) { timers.withLock { $0[ObjectIdentifier(timer)] = Weak(timer: timer) } }

    /// Of one that has ended, or that nobody keeps any more.
    func remove(_ timer: EventTimer) { timers.withLock { _ = $0.removeValue(forKey: ObjectIdentifier(timer)) } }

    var count: Int { timers.withLock { $0.count } }

    func enteredBackground() { for timer in current { timer.change { $0.enteredBackground(now: $1) } } }

    func becameActive() { for timer in current { timer.change { $0.becameActive(now: $1) } } }

    private var current: [EventTimer] { timers.withLock { $0.values.compactMap(\.timer) } }
}
