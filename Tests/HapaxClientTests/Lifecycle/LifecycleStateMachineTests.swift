import Testing

@testable import HapaxClient

@Suite("LifecycleStateMachine (R30–R52, D8–D10)", .endsWhenItHangs)
struct LifecycleStateMachineTests {
    typealias Action = LifecycleStateMachine.Action

    /// The actions of each signal; a flush ends when the test says so.
    private func actions(_ signals: LifecycleSignal...) -> [[Action]] {
        var machine = LifecycleStateMachine()
        return signals.map { LifecycleHistories.perform(.signal($0), on: &machine, grants: true) }
    }

    private let start: [Action] = [
        .markPassive(false), .emitAppStart, .tellScreen, .resumeTimers, .startForegroundTimer, .startPeriodicTimer,
    ]
    private let end: [Action] = [.emitAppEnd, .beginAssertion, .flush, .pauseTimers, .stopPeriodicTimer]

    @Test("cold start, then background, then back: start, end, start, each in its order (R43, R44, R46, R52, D8)")
    func sessionsAlternate() {
        #expect(
            actions(
                .didFinishLaunching(inBackground: false), .didBecomeActive, .willResignActive, .didEnterBackground, .willEnterForeground)
                == [[], start, [], end, []])
        var machine = LifecycleStateMachine()
        for signal in [LifecycleSignal.didBecomeActive, .didEnterBackground, .willEnterForeground] { _ = machine.handle(signal) }
        let actions1 = machine.handle(.didBecomeActive)
        #expect(actions1 == start)
    }

    @Test("notification centre and back emits nothing (R45)")
    func shortInactivityIsSilent() {
        #expect(actions(.didBecomeActive, .willResignActive, .didBecomeActive) == [start, [], []])
    }

    @Test("an alert before the first activation does not lose the start (D9)")
    func alertBeforeActivationKeepsTheStart() {
        #expect(actions(.didFinishLaunching(inBackground: false), .willResignActive, .didBecomeActive) == [[], [], start])
    }

    @Test("a passive launch emits its own event and stops the periodic timer (R47, D10); the first activation clears it (R48)")
    func passiveLaunchIsNoStart() {
        #expect(
            actions(.didFinishLaunching(inBackground: true), .willEnterForeground, .didBecomeActive)
                == [[.markPassive(true), .emitAppStartPassively, .stopPeriodicTimer], [], start])
    }

    @Test("without an assertion nothing is sent (R31)")
    func refusedAssertionSendsNothing() {
        var machine = LifecycleStateMachine()
        _ = machine.handle(.didBecomeActive)
        let actions = LifecycleHistories.perform(.signal(.didEnterBackground), on: &machine, grants: false)
        #expect(actions == [.emitAppEnd, .beginAssertion, .pauseTimers, .stopPeriodicTimer])
        #expect(machine.state == .suspended)
        let actions2 = machine.handle(.backgroundTimeExpired)
        #expect(actions2 == [])
    }

    @Test("the assertion ends once: with the flush, or when its time is over, not both (R30)", arguments: [true, false])
    func assertionEndsOnce(flushFirst: Bool) {
        var machine = LifecycleStateMachine()
        _ = LifecycleHistories.perform(.signal(.didEnterBackground), on: &machine, grants: true)
        let first = flushFirst ? machine.backgroundFlushEnded() : machine.handle(.backgroundTimeExpired)
        #expect(first == (flushFirst ? [.endAssertion] : [.stopFlush, .endAssertion]))
        let later = machine.backgroundFlushEnded() + machine.handle(.backgroundTimeExpired)
        #expect(later == [])
    }

    @Test("terminating from the foreground ends the session and stores (R37, R38); nothing follows")
    func terminationStores() {
        #expect(
            actions(.didBecomeActive, .willTerminate, .didBecomeActive) == [start, [.emitAppEnd, .stopPeriodicTimer, .storeAndStop], []])
        #expect(
            actions(.didBecomeActive, .didEnterBackground, .willTerminate).last == [
                .stopFlush, .stopPeriodicTimer, .storeAndStop, .endAssertion,
            ])
    }

    @Test("every history up to seven steps does what the reference model says", arguments: [true, false])
    func everyHistoryAgreesWithTheModel(grants: Bool) {
        let histories = LifecycleHistories(grants: grants) { LifecycleHistories.perform($0, on: &$1, grants: grants) }
        #expect(histories.firstDisagreement(upTo: 7) == nil)
    }

    /// Controls of the test above: each is a defect seen in published clients.
    enum PlantedBug: CaseIterable {
        case startOnEveryActivation, startLostAfterResign, timersNotResumed, timerRunsPassively, assertionNeverEnds, endTwice, noStoring
        case startsAgainUnseen

        func apply(_ actions: [Action], _ step: LifecycleHistories.Step, before: LifecycleStateMachine) -> [Action] {
            switch self {
            case .startOnEveryActivation:
                step == .signal(.didBecomeActive) && before.state == .inactive && before.isSessionOpen ? [.emitAppStart] : actions
            case .startLostAfterResign: before.state == .inactive ? actions.filter { $0 != .emitAppStart } : actions
            case .timersNotResumed: actions.filter { $0 != .resumeTimers }
            case .timerRunsPassively: actions.contains(.emitAppStartPassively) ? actions.filter { $0 != .stopPeriodicTimer } : actions
            case .assertionNeverEnds: step == .flushEnded ? [] : actions
            case .endTwice: step == .signal(.willTerminate) && !before.isSessionOpen ? [.emitAppEnd] + actions : actions
            case .noStoring: actions.filter { $0 != .storeAndStop }
            case .startsAgainUnseen: step == .beginsAgain ? [.emitAppEnd, .emitAppStart, .tellScreen, .startForegroundTimer] : actions
            }
        }
    }

    @Test("the model catches planted bugs", arguments: PlantedBug.allCases)
    func modelCatchesPlantedBugs(bug: PlantedBug) {
        let histories = LifecycleHistories(grants: true) { step, machine in
            let before = machine
            return bug.apply(LifecycleHistories.perform(step, on: &machine, grants: true), step, before: before)
        }
        #expect(histories.firstDisagreement(upTo: 7) != nil)
    }
}
