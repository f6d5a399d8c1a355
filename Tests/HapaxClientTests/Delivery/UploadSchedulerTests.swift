import HapaxModel
import HapaxTestKit
import Testing

@testable import HapaxClient

@Suite("UploadScheduler (R21, R29, R36)", .endsWhenItHangs)
struct UploadSchedulerTests {
    private let clock = LateClock()
    private let ticks = Locked(0)

    private func scheduler() -> UploadScheduler {
        UploadScheduler(
            policy: Locked(FlushPolicy(UploadSettings(interval: .seconds(15), bulkSize: 100, immediateEvents: []), now: .zero)),
            clock: clock, depth: { 1 },
            ticked: { [ticks] in ticks.withLock { $0 += 1 } }, upload: {})
    }

    @Test("what is due while there is no network stays due until there is one (R23)", arguments: [true, false])
    func whatIsDueStaysDue(isTimed: Bool) {
        let clock = TestClock()
        let network = Locked<NetworkType?>(nil)
        let uploads = Locked(0)
        let scheduler = UploadScheduler(
            policy: Locked(FlushPolicy(UploadSettings(interval: .seconds(15), bulkSize: 100, immediateEvents: []), now: .zero)),
            clock: clock, depth: { 1 },
            network: { network.withLock { $0 } }, upload: { uploads.withLock { $0 += 1 } })
        scheduler.startTimer()
        clock.advance(by: .seconds(15))
        scheduler.eventsStored(depth: 1, immediate: true)
        #expect(uploads.withLock { $0 } == 0)
        network.withLock { $0 = .wifi }
        if isTimed { clock.advance(by: .seconds(15)) } else { scheduler.eventsStored(depth: 1, immediate: false) }
        #expect(uploads.withLock { $0 } == 1)
    }

    @Test("a switch that is overtaken by the next one, or by the app's background, changes nothing any more (R24, R36, I15)")
    func overtakenSwitchDoesNothing() {
        let clock = TestClock()
        let during = Locked<(@Sendable () -> Void)?>(nil)
        let scheduler = UploadScheduler(
            policy: Locked(FlushPolicy(UploadSettings(interval: .seconds(15), bulkSize: 100, immediateEvents: []), now: .zero)),
            clock: clock, depth: { 1 },
            upload: {
                let action = during.withLock { action in
                    defer { action = nil }
                    return action
                }
                action?()
            })
        scheduler.startTimer()
        scheduler.change { $0.interval = nil }
        #expect(clock.pending == [])
        // Between what switching on decides, to upload and to start the timer, the app enters the background.
        during.withLock { $0 = { scheduler.stopTimer() } }
        scheduler.change { $0.interval = .seconds(15) }
        #expect(clock.pending == [])
        scheduler.startTimer()
        #expect(clock.pending == [.seconds(15)])
        // Or it is switched off again.
        scheduler.change { $0.interval = nil }
        during.withLock { $0 = { scheduler.change { $0.interval = nil } } }
        scheduler.change { $0.interval = .seconds(15) }
        #expect(clock.pending == [])
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

    @Test("behind the end a timer does nothing, and none begins (R29, D7)")
    func endedTimerDoesNothing() {
        let scheduler = scheduler()
        scheduler.startTimer()
        scheduler.stop()
        scheduler.startTimer()
        for number in 1...2 { clock.fire(number) }
        #expect(ticks.withLock { $0 } == 0 && clock.count == 2)
    }

    @Test("a timer that is stopped while it is being scheduled is cancelled (R36)")
    func timerBeingScheduledIsCancelled() {
        let scheduler = scheduler()
        clock.whenScheduled { scheduler.stopTimer() }
        scheduler.startTimer()
        #expect(clock.cancelled == 1)
    }

    @Test("there is a timer while one is wanted and has an interval, and none behind the end (R21, R26, R36)")
    func timerRunsWhileItIsWanted() {
        let clock = TestClock()
        let scheduler = UploadScheduler(
            policy: Locked(FlushPolicy(UploadSettings(interval: .seconds(15), bulkSize: 100, immediateEvents: []), now: .zero)),
            clock: clock, depth: { 1 }, upload: {})
        func set(_ interval: Duration?) -> [Duration] {
            scheduler.change { $0.interval = interval }
            return clock.pending
        }
        #expect(set(.seconds(20)) == [])
        scheduler.startTimer()
        #expect(clock.pending == [.seconds(20)])
        #expect(set(nil) == [] && set(.seconds(30)) == [.seconds(30)])
        scheduler.stopTimer()
        #expect(clock.pending == [] && set(.seconds(40)) == [])
        scheduler.startTimer()
        #expect(clock.pending == [.seconds(40)])
        scheduler.stop()
        #expect(clock.pending == [])
        scheduler.startTimer()
        #expect(clock.pending == [])
    }
}

/// A clock on which cancelling always comes too late.
private final class LateClock: ClientClock {
    private struct Late: ScheduledAction {
        let told: @Sendable () -> Void
        func cancel() { told() }
    }

    private let actions = Locked<[@Sendable () -> Void]>([])
    private let hook = Locked<(@Sendable () -> Void)?>(nil)
    private let cancellations = Locked(0)

    let unixMilliseconds: Int64 = 0
    let monotonic: Duration = .zero

    /// What has been scheduled so far.
    var count: Int { actions.withLock { $0.count } }

    /// How often something was cancelled.
    var cancelled: Int { cancellations.withLock { $0 } }

    /// Called before whoever schedules learns that it is done.
    func whenScheduled(_ hook: @escaping @Sendable () -> Void) { self.hook.withLock { $0 = hook } }

    func schedule(after delay: Duration, _ action: @escaping @Sendable () -> Void) -> any ScheduledAction {
        actions.withLock { $0.append(action) }
        hook.withLock { $0 }?()
        return Late { [cancellations] in cancellations.withLock { $0 += 1 } }
    }

    /// - Parameter number: From 1, in the order of scheduling.
    func fire(_ number: Int) { actions.withLock { $0[number - 1] }() }
}
