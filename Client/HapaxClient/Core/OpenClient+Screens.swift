import HapaxModel

/// The screen that is shown, and for how long it has been.
struct ShownScreen: Sendable {
    var name: String
    /// Stands still in the background.
    var stopwatch: Stopwatch
}

extension OpenClient {
    package func trackScreen(_ name: String, properties: Properties) {
        let now = clock.monotonic
        let (isNew, previous) = screen.withLock { screen -> (Bool, ShownScreen?) in
            guard screen?.name != name else { return (false, nil) }
            let previous = screen
            screen = ShownScreen(name: name, stopwatch: Stopwatch(now: now))
            return (true, previous)
        }
        guard isNew else { return }
        writer.intake.withLock { $0.context.screenName = name }
        var own: Properties = [EventContext.screenName: name]
        if var previous {
            own["$previous_screen"] = .string(previous.name)
            own["$event_duration"] = previous.stopwatch.end(now: now).eventDuration
        }
        own.merge(properties)
        track(AutomaticEvent.appViewScreen.rawValue, properties: own)
    }
}
