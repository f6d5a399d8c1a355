import HapaxModel

// The app it lives in, and what it measures.
extension EventClient {
    /// Connects the client with the app, and keeps the adapter, which must not keep the client.
    ///
    /// A client that is started while the app is in the background takes the launch for a passive one: `$AppStartPassively`, and
    /// `$app_state` on every event until the app is active (R47–R49).
    public func attach(_ adapter: any ApplicationAdapter) { whenOpen { $0.attach(adapter) } }

    /// The same for an app that learns only later whether it was launched passively.
    package func attach(
        _ adapter: any ApplicationAdapter, decidingAfter delay: Duration, isInBackground: @escaping @MainActor @Sendable () -> Bool
    ) {
        whenOpen { $0.attach(adapter, decidingAfter: delay, isInBackground: isInBackground) }
    }

    /// Tells the client what happens to the app; see ``LifecycleSignal``.
    ///
    /// Returns at once, except on `didEnterBackground` if ``UploadSettings/waitsInBackground`` is set or debug mode is on, and on
    /// `willTerminate`: that returns when everything tracked is on disk, after 500 ms at the latest, and never waits for the network (R38, R39).
    public func handle(_ signal: LifecycleSignal) { whenOpen { $0.handle(signal) } }

    // MARK: - Timers

    /// Starts to measure how long something takes, on a monotonic clock. A timer of that name begins again at zero.
    ///
    /// Timers live in memory: one that runs when the process ends is gone. Those that run stand still while the app is in the background;
    /// one that is started or resumed there runs.
    ///
    /// - Parameter name: Of the event that ``endTimer(_:properties:id:distinctID:)`` tracks.
    /// - Returns: false if 1,000 timers are running or paused already; then nothing is measured.
    @discardableResult
    public func startTimer(_ name: String) -> Bool { open?.startTimer(name) ?? false }

    /// Stops the measuring for a while. Nothing happens if there is no such timer or it is paused.
    public func pauseTimer(_ name: String) { open?.pauseTimer(name) }

    /// Goes on measuring. Nothing happens if there is no such timer or it runs.
    public func resumeTimer(_ name: String) { open?.resumeTimer(name) }

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
        openOrRefusal()?.endTimer(name, properties: properties, id: id, distinctID: distinctID)
    }
}
