@testable import HapaxClient

/// All histories of an app up to a length, each compared step by step with a small model that is written from the requirements.
struct LifecycleHistories {
    typealias Action = LifecycleStateMachine.Action

    enum Step: Hashable {
        case signal(LifecycleSignal)
        case flushEnded
        case beginsAgain
    }

    static let steps: [Step] =
        [
            .didFinishLaunching(inBackground: false), .didFinishLaunching(inBackground: true), .willEnterForeground, .didBecomeActive,
            .willResignActive, .didEnterBackground, .willTerminate, .backgroundTimeExpired,
        ].map { .signal($0) } + [.flushEnded, .beginsAgain]

    let grants: Bool
    /// What is tested: the machine, or one with a bug.
    let perform: (Step, inout LifecycleStateMachine) -> [Action]

    static func perform(_ step: Step, on machine: inout LifecycleStateMachine, grants: Bool) -> [Action] {
        guard case .signal(let signal) = step else {
            return step == .flushEnded ? machine.backgroundFlushEnded() : machine.beginsAgain()
        }
        return machine.handle(signal).flatMap { action in
            action == .beginAssertion ? [action] + machine.assertionAnswered(granted: grants) : [action]
        }
    }

    /// The shortest history prefix, in search order, after which machine and model differ.
    func firstDisagreement(upTo length: Int) -> [Step]? {
        var seen: Set<Point> = []
        return search(Point(machine: LifecycleStateMachine(), model: Model(grants: grants), left: length), [], &seen)
    }

    /// Both are values that depend on nothing else: two histories that lead to the same pair have the same futures, so that one of them
    /// stands for both, and all 10⁷ are covered.
    private struct Point: Hashable {
        var machine: LifecycleStateMachine
        var model: Model
        var left: Int
    }

    private func search(_ point: Point, _ history: [Step], _ seen: inout Set<Point>) -> [Step]? {
        guard point.left > 0, seen.insert(point).inserted else { return nil }
        for step in Self.steps {
            var next = point
            next.left -= 1
            let actual = perform(step, &next.machine)
            if actual != next.model.expected(step) { return history + [step] }
            if let found = search(next, history + [step], &seen) { return found }
        }
        return nil
    }

    /// Facts instead of states: what the app shows, what was said, what is held.
    struct Model: Hashable {
        var grants: Bool
        var wasSeen = false
        var isShown = false
        var isActive = false
        var startIsSaid = false
        var assertions = 0
        var isOver = false

        mutating func expected(_ step: Step) -> [Action] {
            if isOver { return [] }
            var said: [Action] = []
            switch step {
            case .signal(.didFinishLaunching(let hidden)):
                // Only the first thing that is heard can be the launch.
                guard !wasSeen else { break }
                (wasSeen, isShown) = (true, !hidden)
                if hidden { said = [.markPassive(true), .emitAppStartPassively, .stopPeriodicTimer] }
            case .signal(.willEnterForeground):
                if wasSeen { isShown = true }
            case .signal(.didBecomeActive):
                (wasSeen, isShown, isActive) = (true, true, true)
                if !startIsSaid {
                    said = [.markPassive(false), .emitAppStart, .tellScreen, .resumeTimers, .startForegroundTimer, .startPeriodicTimer]
                }
                startIsSaid = true
            case .signal(.willResignActive): isActive = false
            case .signal(.didEnterBackground):
                guard isShown || !wasSeen else { break }
                if startIsSaid { said.append(.emitAppEnd) }
                (wasSeen, isShown, isActive, startIsSaid) = (true, false, false, false)
                if assertions == 0 { said.append(.beginAssertion) }
                if grants {
                    assertions = 1
                    said.append(.flush)
                }
                said += [.pauseTimers, .stopPeriodicTimer]
            case .signal(.willTerminate):
                if startIsSaid { said.append(.emitAppEnd) }
                if assertions == 1 { said.append(.stopFlush) }
                said += [.stopPeriodicTimer, .storeAndStop]
                if assertions == 1 { said.append(.endAssertion) }
                isOver = true
            case .signal(.backgroundTimeExpired):
                if assertions == 1 { said = [.stopFlush, .endAssertion] }
                assertions = 0
            case .beginsAgain:
                if startIsSaid { said = [.emitAppEnd, .emitAppStart, .tellScreen, .startForegroundTimer] }
            case .flushEnded:
                if assertions == 1 { said = [.endAssertion] }
                assertions = 0
            }
            return said
        }
    }
}
