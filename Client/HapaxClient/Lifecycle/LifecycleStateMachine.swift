/// What an app's life means for its events: when it has started and ended, when to flush and which timers run (R30–R52).
///
/// A value without clock or I/O. Each signal gives the actions it calls for, to be performed in their order. `$AppStart` and `$AppEnd`
/// alternate, whatever an adapter signals: an end without a start is not emitted, and a start that an alert delayed is not lost (D9).
struct LifecycleStateMachine: Hashable, Sendable {
    enum State: Hashable, Sendable {
        case notRunning  // → inactive, active, background, suspended
        /// In the foreground, without the user's attention.
        case inactive  // → active, background, suspended, notRunning
        case active  // → inactive, background, suspended, notRunning
        /// In the background and running.
        case background  // → inactive, active, suspended, notRunning
        /// In the background without an assertion: the system may freeze the process at any moment.
        case suspended  // → inactive, active, notRunning
    }

    enum Action: Hashable, Sendable {
        case emitAppStart
        case emitAppEnd
        /// `$AppViewScreen` of the screen that is shown, if there is no event of it yet.
        case tellScreen
        case emitAppStartPassively
        /// From now on events carry `$app_state = "background"`, or no longer do (R48).
        case markPassive(Bool)
        /// Ask for time in the background, then call ``assertionAnswered(granted:)`` and perform what that gives first.
        case beginAssertion
        case endAssertion
        /// Flush under the assertion, then call ``backgroundFlushEnded()``.
        case flush
        /// Begin no further batch of the background flush.
        case stopFlush
        case pauseTimers
        case resumeTimers
        /// Measure the time until `$AppEnd`, which carries it (R51).
        case startForegroundTimer
        case startPeriodicTimer
        case stopPeriodicTimer
        /// Store what was tracked, within a bound and without waiting for the network, and end (R38, R39).
        case storeAndStop
    }

    private(set) var state = State.notRunning
    /// `$AppStart` was emitted and its `$AppEnd` was not.
    private(set) var isSessionOpen = false
    private(set) var holdsAssertion = false
    private var isTerminated = false

    /// When requests may be made.
    enum Uploads: Hashable, Sendable {
        case always
        /// The process may be frozen at any moment: only under an assertion, and only what fits into the time that is left (R31, R33).
        case underAssertion
        /// The process ends: what is begun now would be cut off.
        case onlyOnRequest
    }

    var uploads: Uploads {
        if isTerminated { return .onlyOnRequest }
        return state == .background || state == .suspended ? .underAssertion : .always
    }

    mutating func handle(_ signal: LifecycleSignal) -> [Action] {
        if isTerminated { return [] }
        switch signal {
        case .didFinishLaunching(let inBackground): return didFinishLaunching(inBackground: inBackground)
        case .willEnterForeground:
            if state == .background || state == .suspended { state = .inactive }
            return []
        case .didBecomeActive: return didBecomeActive()
        case .willResignActive:
            if state == .active { state = .inactive }
            return []
        case .didEnterBackground: return didEnterBackground()
        case .willTerminate: return willTerminate()
        case .backgroundTimeExpired: return backgroundTimeExpired()
        }
    }

    mutating func assertionAnswered(granted: Bool) -> [Action] {
        guard !isTerminated, !holdsAssertion else { return [] }
        holdsAssertion = granted
        if granted { return [.flush] }
        // Nothing is sent without it (R31): a request that is cut off would only be sent again.
        if state == .background { state = .suspended }
        return []
    }

    mutating func backgroundFlushEnded() -> [Action] {
        if state == .background && holdsAssertion { state = .suspended }
        return endAssertion()
    }

    /// Another session begins while the app is shown, and nothing else changes.
    func beginsAgain() -> [Action] {
        isSessionOpen ? [.emitAppEnd, .emitAppStart, .tellScreen, .startForegroundTimer] : []
    }

    // MARK: - Transitions

    private mutating func didFinishLaunching(inBackground: Bool) -> [Action] {
        guard state == .notRunning else { return [] }
        state = inBackground ? .background : .inactive
        // The timer runs since the client started; launched passively, nothing is uploaded by the clock (D10).
        return inBackground ? [.markPassive(true), .emitAppStartPassively, .stopPeriodicTimer] : []
    }

    private mutating func didBecomeActive() -> [Action] {
        state = .active
        // Notification centre and back is the same session (R45).
        guard !isSessionOpen else { return [] }
        isSessionOpen = true
        return [.markPassive(false), .emitAppStart, .tellScreen, .resumeTimers, .startForegroundTimer, .startPeriodicTimer]
    }

    private mutating func didEnterBackground() -> [Action] {
        guard state != .background, state != .suspended else { return [] }
        state = .background
        // One assertion at a time: that of a flush which still goes on covers this one, too.
        return endSession() + [holdsAssertion ? .flush : .beginAssertion, .pauseTimers, .stopPeriodicTimer]
    }

    private mutating func willTerminate() -> [Action] {
        isTerminated = true
        state = .notRunning
        let flush: [Action] = holdsAssertion ? [.stopFlush] : []
        return endSession() + flush + [.stopPeriodicTimer, .storeAndStop] + endAssertion()
    }

    private mutating func backgroundTimeExpired() -> [Action] {
        if state == .background { state = .suspended }
        return holdsAssertion ? [.stopFlush] + endAssertion() : []
    }

    private mutating func endSession() -> [Action] {
        defer { isSessionOpen = false }
        return isSessionOpen ? [.emitAppEnd] : []
    }

    private mutating func endAssertion() -> [Action] {
        defer { holdsAssertion = false }
        return holdsAssertion ? [.endAssertion] : []
    }
}
