import HapaxModel

extension OpenClient {
    @discardableResult
    package func startTimer(_ name: String) -> Bool {
        timers.withLock { $0.start(name, now: clock.monotonic) }
    }

    package func pauseTimer(_ name: String) {
        timers.withLock { $0.pause(name, now: clock.monotonic) }
    }

    package func resumeTimer(_ name: String) {
        timers.withLock { $0.resume(name, now: clock.monotonic) }
    }

    @discardableResult
    package func endTimer(
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
