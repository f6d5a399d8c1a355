import Dispatch
import HapaxModel

/// Runs a ``LifecycleStateMachine``: one input at a time, its actions in their order, wherever the inputs come from.
///
/// Actions are performed without a lock held. An input that arrives while others are being performed, even from within an action, waits in
/// line, and its caller goes on: nobody waits for another thread here (D7).
final class AppLifecycle: Sendable {
    enum Input: Sendable {
        case signal(LifecycleSignal)
        /// ``LifecycleStateMachine/beginsAgain()``
        case beginsAgain
        case flushEnded
    }

    /// What the machine's actions leave behind.
    struct Record: Sendable {
        /// An app from which nothing has been heard yet: nobody knows whether it is shown.
        var isAwaited = false
        /// Ends that.
        var awaiting: (any ScheduledAction)?
        var adapter: (any ApplicationAdapter)?
        var assertion: Int?
        /// Of uploads that the app asked for in the background; the machine's own is `assertion`.
        var requestedAssertions: [Int] = []
        /// Of a pass that a policy began there.
        var policyAssertion: Int?
        var foregroundSince: Duration?
        var mayFlush = false
        var isFlushing = false
        /// A flush was asked for during one.
        var flushAgain = false
        /// Signalled when a background flush has ended, for who waits for it.
        var flushed: DispatchSemaphore?
        /// Signalled when everything tracked before the app's end is stored; there once that end has begun.
        var terminated: DispatchSemaphore?
    }

    private struct State {
        var machine = LifecycleStateMachine()
        var inputs: [Input] = []
        var isPerforming = false
        var record = Record()
    }

    private let state = Locked(State())

    var machine: LifecycleStateMachine { state.withLock { $0.machine } }

    func withRecord<Value: Sendable>(_ body: (inout Record) -> Value) -> Value {
        state.withLock { body(&$0.record) }
    }

    /// - Returns: Whether it was awaited until now.
    func stopAwaiting() -> Bool {
        let (wasAwaited, awaiting) = withRecord { record in
            defer { (record.isAwaited, record.awaiting) = (false, nil) }
            return (record.isAwaited, record.awaiting)
        }
        awaiting?.cancel()
        return wasAwaited
    }

    func attach(_ adapter: any ApplicationAdapter) {
        // The one before goes after the lock: its end is the app's code.
        _ = withRecord { record in
            defer { record.adapter = adapter }
            return record.adapter
        }
    }

    /// Machine and record as they are at one moment.
    func snapshot() -> (machine: LifecycleStateMachine, record: Record) { state.withLock { ($0.machine, $0.record) } }

    /// - Parameter perform: Answers true if an assertion was to be begun and was granted.
    func handle(_ input: Input, perform: (LifecycleStateMachine.Action) -> Bool) {
        let isFree = state.withLock { state in
            state.inputs.append(input)
            defer { state.isPerforming = true }
            return !state.isPerforming
        }
        guard isFree else { return }
        while let actions = next() { run(actions, perform) }
    }

    private func next() -> [LifecycleStateMachine.Action]? {
        state.withLock { state in
            guard !state.inputs.isEmpty else {
                state.isPerforming = false
                return nil
            }
            switch state.inputs.removeFirst() {
            case .signal(let signal): return state.machine.handle(signal)
            case .beginsAgain: return state.machine.beginsAgain()
            // Another has begun meanwhile, under the same assertion, and will say so itself.
            case .flushEnded: return state.record.isFlushing ? [] : state.machine.backgroundFlushEnded()
            }
        }
    }

    private func run(_ actions: [LifecycleStateMachine.Action], _ perform: (LifecycleStateMachine.Action) -> Bool) {
        for action in actions {
            let granted = perform(action)
            if action == .beginAssertion {
                run(state.withLock { $0.machine.assertionAnswered(granted: granted) }, perform)
            }
        }
    }
}
