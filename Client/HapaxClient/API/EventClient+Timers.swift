import HapaxModel

extension EventClient {
    /// Starts to measure how long something takes, on a monotonic clock. A timer of that name begins again at zero.
    ///
    /// Timers live in memory: one that runs when the process ends is gone. Those that run stand still while the app is in the background;
    /// one that is started or resumed there runs.
    ///
    /// - Parameter name: Of the event that ``endTimer(_:properties:id:distinctID:)`` tracks.
    /// - Returns: false if 1,000 timers are running or paused already; then nothing is measured.
    @discardableResult
    public func startTimer(_ name: String) -> Bool {
        timers.withLock { $0.start(name, now: clock.monotonic) }
    }

    /// Stops the measuring for a while. Nothing happens if there is no such timer or it is paused.
    public func pauseTimer(_ name: String) {
        timers.withLock { $0.pause(name, now: clock.monotonic) }
    }

    /// Goes on measuring. Nothing happens if there is no such timer or it runs.
    public func resumeTimer(_ name: String) {
        timers.withLock { $0.resume(name, now: clock.monotonic) }
    }

    /// Ends a timer and tracks the event of its name, with `$event_duration` in seconds.
    ///
    /// The event happened, whether or not it was measured: without such a timer it is tracked without a duration. For what may be lost see
    /// ``track(_:properties:id:time:distinctID:)``.
    ///
    /// - Parameter properties: A `$event_duration` among them wins.
    /// - Returns: As `track` does.
    @discardableResult
    public func endTimer(
        _ name: String, properties: Properties = [:], id: EventID? = nil, distinctID: String? = nil
    ) -> EventID? {
        let measured = timers.withLock { $0.end(name, now: clock.monotonic) }
        var properties = properties
        if let measured, properties["$event_duration"] == nil { properties["$event_duration"] = measured.eventDuration }
        return track(name, properties: properties, id: id, distinctID: distinctID)
    }
}

extension Duration {
    /// Seconds, to the millisecond.
    var eventDuration: PropertyValue { .double((self / .milliseconds(1)).rounded() / 1_000) }
}
