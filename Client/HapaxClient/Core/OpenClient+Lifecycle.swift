import Dispatch
import Foundation
import HapaxModel

extension OpenClient {
    package func attach(_ adapter: any ApplicationAdapter) {
        lifecycle.attach(adapter)
        handle(.didFinishLaunching(inBackground: adapter.isInBackground))
    }

    /// The same for an app that learns only later whether it was launched passively.
    package func attach(
        _ adapter: any ApplicationAdapter, decidingAfter delay: Duration, isInBackground: @escaping @MainActor @Sendable () -> Bool
    ) {
        lifecycle.attach(adapter)
        _ = clock.schedule(after: delay) { [weak self] in
            Task { @MainActor in self?.handle(.didFinishLaunching(inBackground: isInBackground())) }
        }
    }

    package func handle(_ signal: LifecycleSignal) {
        let isFirst = lifecycle.stopAwaiting()
        defer { if isFirst { beginUploads() } }
        if signal == .backgroundTimeExpired { endRequestedAssertions() }
        let waitsForUploads = uploads.waitsInBackground || configuration.debug.isOn
        if signal == .didEnterBackground && waitsForUploads { return enterBackgroundFlushed() }
        guard signal == .willTerminate else { return lifecycle.handle(.signal(signal), perform: perform) }
        let first = DispatchSemaphore(value: 0)
        let stored = lifecycle.withRecord { record in
            if record.terminated == nil { record.terminated = first }
            return record.terminated ?? first
        }
        if stored === first {
            let limit = clock.schedule(after: Self.storingTime) { stored.signal() }
            lifecycle.handle(.signal(signal), perform: perform)
            // The process ends when the caller returns. The writer has a thread of its own and needs nobody who may be blocked here (D7).
            stored.wait()
            limit.cancel()
        } else {
            stored.wait()
        }
        // For other handlers of the same signal.
        stored.signal()
    }

    /// What a terminating app waits for its events to be stored.
    private static let storingTime: Duration = .milliseconds(500)

    private func perform(_ action: LifecycleStateMachine.Action) -> Bool {
        let now = clock.monotonic
        switch action {
        case .emitAppStart:
            if let id = track(AutomaticEvent.appStart.rawValue) {
                session.began(id, for: identity.distinctID)
                writer.whenStored { [session] in session.eventsStored() }
            }
        case .emitAppEnd: endSession()
        case .tellScreen: tellScreen()
        case .emitAppStartPassively: track(AutomaticEvent.appStartPassively.rawValue)
        case .markPassive(let isPassive):
            writer.intake.withLock { $0.context.isPassive = isPassive }
        case .beginAssertion: return beginAssertion()
        case .endAssertion: endAssertion()
        case .flush: beginBackgroundFlush()
        case .stopFlush: lifecycle.withRecord { $0.mayFlush = false }
        case .pauseTimers:
            timers.enteredBackground()
            screens.withLock { $0.told?.stopwatch.enteredBackground(now: now) }
        case .resumeTimers:
            timers.becameActive()
            screens.withLock { $0.told?.stopwatch.becameActive(now: now) }
        case .startForegroundTimer: lifecycle.withRecord { $0.foregroundSince = now }
        case .startPeriodicTimer: scheduler.startTimer()
        case .stopPeriodicTimer: scheduler.stopTimer()
        case .storeAndStop: if let stored = lifecycle.withRecord({ $0.terminated }) { writer.whenStored { stored.signal() } }
        }
        return false
    }

    /// Of a session that is shown, and has an event of its start.
    func endSession() {
        let now = clock.monotonic
        var properties: Properties = [:]
        if let since = lifecycle.withRecord({ $0.foregroundSince }) { properties["$event_duration"] = (now - since).eventDuration }
        // The screen is not left: it goes on when the app is back.
        if var told = screens.withLock({ $0.told }) { properties["$screen_duration"] = told.stopwatch.end(now: now).eventDuration }
        // Of a session whose start was refused, as before an opt-in, there is no end either.
        guard let start = session.ended() else { return }
        if track(AutomaticEvent.appEnd.rawValue, properties: properties, id: SessionMarker.endID(start)) == nil { endWasRefused(start) }
    }

    private func endWasRefused(_ start: EventID) { writer.whenStored { [session] in session.endWasRefused(start) } }

    /// The last session ended without `$AppEnd`: the process crashed or was killed.
    func recoverAppEnd() {
        guard let open = try? file.openSession() else { return }
        session.ended(open.start)
        let id = track(
            AutomaticEvent.appEnd.rawValue, properties: open.properties, id: SessionMarker.endID(open.start),
            time: Date(unixMilliseconds: open.lastActivity), distinctID: open.distinctID)
        if id == nil { endWasRefused(open.start) }
    }

    /// What came before was another's: another person's, or of one who had denied consent. The app is shown all the same.
    func beginSessionAgain() { lifecycle.handle(.beginsAgain, perform: perform) }

    // MARK: - In the background

    private func beginAssertion() -> Bool {
        let assertion = lifecycle.withRecord { $0.adapter }?.beginAssertion()
        lifecycle.withRecord { $0.assertion = assertion }
        return assertion != nil
    }

    private func endAssertion() {
        let (adapter, assertion) = lifecycle.withRecord { record in
            defer { record.assertion = nil }
            return (record.adapter, record.assertion)
        }
        if let assertion { adapter?.endAssertion(assertion) }
    }

    private func beginBackgroundFlush() {
        let begins = lifecycle.withRecord { record in
            record.mayFlush = true
            record.flushAgain = record.isFlushing
            defer { record.isFlushing = true }
            return !record.isFlushing
        }
        guard begins else { return }
        Task {
            repeat {
                await flushInBackground()
            } while lifecycle.withRecord { record in
                defer { (record.isFlushing, record.flushAgain) = (record.flushAgain, false) }
                return record.flushAgain
            }
            lifecycle.handle(.flushEnded, perform: perform)
            lifecycle.withRecord { $0.isFlushing ? nil : $0.flushed }?.signal()
        }
    }

    /// Blocks until the background flush has ended, or its time is over: the signal that says so may wait behind this one (R35). What the app
    /// cannot wait for goes on under the assertion.
    private func enterBackgroundFlushed() {
        let flushed = DispatchSemaphore(value: 0)
        lifecycle.withRecord { $0.flushed = flushed }
        lifecycle.handle(.signal(.didEnterBackground), perform: perform)
        let (adapter, isFlushing) = lifecycle.withRecord { ($0.adapter, $0.isFlushing) }
        guard let adapter, isFlushing else { return }
        let time = min(adapter.remainingBackgroundTime - BackgroundBudget.reserve, adapter.maximumBlockingTime)
        let limit = clock.schedule(after: time) { flushed.signal() }
        flushed.wait()
        limit.cancel()
    }

    /// Batch after batch until the queue is empty, an attempt fails, or too little time is left (R32, R33).
    private func flushInBackground() async {
        try? await writer.barrier()
        _ = await delivery.drain(isReported: false) { [gate, lifecycle] in
            let permission = gate.permission(isManual: false)
            return permission == .denied || lifecycle.withRecord { $0.mayFlush } ? permission : .unwanted
        }
    }

    /// Uploads because somebody asked for it. In the background that takes an assertion of its own, which ends with the upload or with the
    /// time that the system grants, once; without one nothing is sent (R30, R31).
    func underAssertion<Value: Sendable>(_ upload: () async -> Value) async -> Value {
        let (machine, record) = lifecycle.snapshot()
        guard machine.uploads == .underAssertion, let adapter = record.adapter, let assertion = adapter.beginAssertion() else {
            return await upload()
        }
        lifecycle.withRecord { $0.requestedAssertions.append(assertion) }
        let value = await upload()
        let isHeld = lifecycle.withRecord { record in
            defer { record.requestedAssertions.removeAll { $0 == assertion } }
            return record.requestedAssertions.contains(assertion)
        }
        if isHeld { adapter.endAssertion(assertion) }
        return value
    }

    private func endRequestedAssertions() {
        let (adapter, assertions) = lifecycle.withRecord { record in
            defer { (record.requestedAssertions, record.policyAssertion) = ([], nil) }
            return (record.adapter, record.requestedAssertions + [record.policyAssertion].compactMap(\.self))
        }
        for assertion in assertions { adapter?.endAssertion(assertion) }
    }
}
