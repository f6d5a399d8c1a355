import HapaxModel
import Logging

/// The screens of an app, as it says what it shows.
struct Screens: Sendable {
    /// The last one that the app has named, in the background as well.
    var shown: (name: String, properties: Properties)?
    /// The one that events know of: its own event was taken.
    var told: (name: String, stopwatch: Stopwatch)?
}

extension OpenClient {
    package func trackScreen(_ name: String, properties: Properties) {
        guard Identity.isValid(name) else {
            configuration.logger?.error("A screen's name must have 1 to 200 bytes, none of them U+0000: this one is ignored")
            return
        }
        screens.withLock { $0.shown = (name, properties) }
        let (machine, record) = lifecycle.snapshot()
        // What is made ready in the background, or before it is known whether the app is shown, nobody sees yet.
        let isSeen = machine.uploads != .underAssertion && (machine.state != .notRunning || record.adapter == nil)
        if isSeen { tellScreen() }
    }

    /// Tracks the screen that is shown, unless it is the one that events know of.
    func tellScreen() {
        let now = clock.monotonic
        let change = screens.withLock {
            screens -> (shown: (name: String, properties: Properties), before: (name: String, stopwatch: Stopwatch)?)? in
            guard let shown = screens.shown, screens.told?.name != shown.name else { return nil }
            defer { screens.told = (shown.name, Stopwatch(now: now)) }
            return (shown, screens.told)
        }
        guard let (shown, before) = change else { return }
        var own: Properties = [EventContext.screenName: shown.name]
        if var before {
            own["$previous_screen"] = .string(before.name)
            // Its stopwatch stands still in the background.
            own["$event_duration"] = before.stopwatch.end(now: now).eventDuration
        }
        own.merge(shown.properties)
        let isTaken = track(AutomaticEvent.appViewScreen.rawValue, properties: own) != nil
        screens.withLock { screens in
            // Another one may be shown by now.
            guard screens.told?.name == shown.name else { return }
            if isTaken { writer.intake.withLock { $0.context.screenName = shown.name } } else { screens.told = before }
        }
    }
}
