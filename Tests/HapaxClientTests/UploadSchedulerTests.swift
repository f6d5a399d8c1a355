import HapaxModel
import Testing

@testable import HapaxClient

@Suite("UploadScheduler (R21, R29, R36)")
struct UploadSchedulerTests {
    private let clock = LateClock()
    private let ticks = Locked(0)

    private func scheduler() -> UploadScheduler {
        UploadScheduler(
            policy: FlushPolicy(bulkSize: 100, interval: .seconds(15), immediateEvents: [], now: .zero), clock: clock, depth: { 1 },
            ticked: { [ticks] in ticks.withLock { $0 += 1 } }, upload: {})
    }

    @Test("a timer that fired while it was being stopped does nothing, and does not begin again (R29, R36)")
    func stoppedTimerDoesNothing() {
        let scheduler = scheduler()
        scheduler.startTimer()
        scheduler.stopTimer()
        clock.fire(1)
        #expect(ticks.withLock { $0 } == 0 && clock.count == 1)
    }

    @Test("of two timers, the older one fired too late to be cancelled, one goes on (R21)")
    func replacedTimerDoesNothing() {
        let scheduler = scheduler()
        scheduler.startTimer()
        scheduler.startTimer()
        clock.fire(1)
        #expect(ticks.withLock { $0 } == 0 && clock.count == 2)
        clock.fire(2)
        #expect(ticks.withLock { $0 } == 1 && clock.count == 3, "the current one fires and is followed by the next")
    }
}

/// A clock on which cancelling always comes too late.
private final class LateClock: ClientClock {
    private struct Late: ScheduledAction {
        func cancel() {}
    }

    private let actions = Locked<[@Sendable () -> Void]>([])

    let unixMilliseconds: Int64 = 0
    let monotonic: Duration = .zero

    /// What has been scheduled so far.
    var count: Int { actions.withLock { $0.count } }

    func schedule(after delay: Duration, _ action: @escaping @Sendable () -> Void) -> any ScheduledAction {
        actions.withLock { $0.append(action) }
        return Late()
    }

    /// - Parameter number: From 1, in the order of scheduling.
    func fire(_ number: Int) { actions.withLock { $0[number - 1] }() }
}
