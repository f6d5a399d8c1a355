import Testing

@testable import HapaxClient

@Suite("FlushPolicy (R17–R25)", .endsWhenItHangs)
struct FlushPolicyTests {
    private func policy(bulkSize: Int = 100, interval: Duration = .seconds(15)) -> FlushPolicy {
        FlushPolicy(UploadSettings(interval: interval, bulkSize: bulkSize, immediateEvents: ["$AppStart"]), now: .zero)
    }

    @Test("no upload per event (R17); at the count, not above it (R19)")
    func countTriggersAtTheCount() {
        var policy = policy()
        #expect(policy.eventsStored(depth: 1, immediate: false, now: .zero) == [])
        #expect(policy.eventsStored(depth: 99, immediate: false, now: .zero) == [])
        #expect(policy.eventsStored(depth: 100, immediate: false, now: .zero) == [.upload])
    }

    @Test("a count below 1 acts as 1 (R19)")
    func uselessCountActsAsOne() {
        var policy = policy(bulkSize: 0)
        #expect(policy.eventsStored(depth: 0, immediate: false, now: .zero) == [])
        #expect(policy.eventsStored(depth: 1, immediate: false, now: .zero) == [.upload])
    }

    @Test("an interval under 5 s acts as 5 s and reads back as set (R20)", arguments: [0, 1, 4])
    func shortIntervalActsAsFiveSeconds(seconds: Int) {
        var policy = policy(interval: .seconds(seconds))
        #expect(policy.settings.interval == .seconds(seconds))
        #expect(policy.effectiveInterval == .seconds(5))
        #expect(policy.timerFired(depth: 1, now: .seconds(4)) == [])
        #expect(policy.timerFired(depth: 1, now: .seconds(5)) == [.upload])
    }

    @Test("both the timer and the per-event gate look at the interval (R23)")
    func elapsedIntervalTriggers() {
        var policy = policy()
        #expect(policy.eventsStored(depth: 1, immediate: false, now: .seconds(14)) == [])
        #expect(policy.eventsStored(depth: 1, immediate: false, now: .seconds(15)) == [.upload])
        #expect(policy.timerFired(depth: 1, now: .seconds(16)) == [], "just uploaded")
        #expect(policy.timerFired(depth: 0, now: .seconds(31)) == [], "nothing to send")
        #expect(policy.timerFired(depth: 1, now: .seconds(31)) == [.upload])
        #expect(policy.eventsStored(depth: 1, immediate: false, now: .seconds(45)) == [], "the timer has just uploaded")
        #expect(policy.eventsStored(depth: 1, immediate: false, now: .seconds(46)) == [.upload])
    }

    @Test("a different interval flushes and restarts, the same does nothing (R22)")
    func onlyADifferentIntervalActs() {
        var policy = policy()
        #expect(policy.change({ $0.interval = .seconds(15) }, now: .zero) == [])
        #expect(policy.change({ $0.interval = .seconds(2) }, now: .seconds(100)) == [.upload, .restartTimer(every: .seconds(5))])
        #expect(policy.settings.interval == .seconds(2))
        #expect(policy.eventsStored(depth: 1, immediate: false, now: .seconds(104)) == [], "just uploaded")
    }

    @Test("certain events are uploaded at once (R25)")
    func immediateEventTriggers() {
        var policy = policy()
        #expect(policy.eventsStored(depth: 1, immediate: true, now: .zero) == [.upload])
    }
}
