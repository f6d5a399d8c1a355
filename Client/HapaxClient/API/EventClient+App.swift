import HapaxModel

// The app it lives in, and what it measures.
extension EventClient {
    /// Connects the client with the app, and keeps the adapter, which must not keep the client.
    ///
    /// A client that is started while the app is in the background takes the launch for a passive one: `$AppStartPassively`, and
    /// `$app_state` on every event until the app is active (R47–R49).
    public func attach(_ adapter: any ApplicationAdapter) {
        whenOpen {
            $0.attach(adapter)
        } else: { state in
            state.wishes.attach = { $0.attach(adapter) }
        }
    }

    /// The same for an app that learns only later whether it was launched passively.
    package func attach(
        _ adapter: any ApplicationAdapter, decidingAfter delay: Duration, isInBackground: @escaping @MainActor @Sendable () -> Bool
    ) {
        whenOpen {
            $0.attach(adapter, decidingAfter: delay, isInBackground: isInBackground)
        } else: { state in
            state.wishes.attach = { $0.attach(adapter, decidingAfter: delay, isInBackground: isInBackground) }
        }
    }

    /// Tells the client what happens to the app; see ``LifecycleSignal``.
    ///
    /// Returns at once, except on `didEnterBackground` if ``UploadSettings/waitsInBackground`` is set or debug mode is on, and on
    /// `willTerminate`: that returns when everything tracked is on disk, after 500 ms at the latest, and never waits for the network (R38, R39).
    public func handle(_ signal: LifecycleSignal) {
        whenOpen {
            $0.handle(signal)
        } else: { state in
            if signal != .willTerminate && signal != .backgroundTimeExpired { state.wishes.signal = signal }
        }
    }

    /// A screen is shown. Tracks `$AppViewScreen`, in the background once the app becomes active, if it is another one than before, so that a view that appears again makes no event, and says
    /// which one it is (`$screen_name`, also of what happens from now on), which one was before (`$previous_screen`), and for how many
    /// seconds that was shown (`$event_duration`; the background does not count). `$AppEnd` says it of the last one, as `$screen_duration`. For what may be lost see
    /// ``track(_:properties:id:time:distinctID:)``.
    ///
    /// - Parameters:
    ///   - name: 1…200 bytes of UTF-8 without U+0000; another one is ignored, with an error in the log.
    ///   - properties: They win over these three.
    public func trackScreen(_ name: String, properties: Properties = [:]) {
        whenOpen {
            $0.trackScreen(name, properties: properties)
        } else: { state in
            state.wishes.screen = (name, properties)
        }
    }

    /// Starts to measure how long something takes.
    ///
    /// - Parameter name: Of the event that ``EventTimer/end(properties:id:distinctID:)`` tracks.
    public func startTimer(_ name: String) -> EventTimer {
        let timer = EventTimer(name, self, clock)
        timers.add(timer)
        return timer
    }
}
