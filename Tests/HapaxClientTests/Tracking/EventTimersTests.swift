import HapaxModel
import HapaxTestKit
import Testing

@testable import HapaxClient

@Suite("EventTimers (R53, R54)", .endsWhenItHangs)
struct EventTimersTests {
    @Test("measures what runs and not what is paused (R53)")
    func pausesAreNotMeasured() {
        var watch = Stopwatch(now: .seconds(10))
        for second in [13, 20] { watch.pause(now: .seconds(second)) }
        for second in [30, 31] { watch.resume(now: .seconds(second)) }
        let measured = watch.end(now: .seconds(34))
        #expect(measured == .seconds(7))
    }

    @Test("the background pauses what runs; becoming active resumes exactly that (R54, D8)")
    func backgroundIsNotMeasured() {
        var (running, paused, pausedLater) = (Stopwatch(now: .zero), Stopwatch(now: .zero), Stopwatch(now: .zero))
        paused.pause(now: .seconds(1))
        running.enteredBackground(now: .seconds(2))
        paused.enteredBackground(now: .seconds(2))
        pausedLater.enteredBackground(now: .seconds(2))
        pausedLater.pause(now: .seconds(3))
        for _ in 0..<2 { running.becameActive(now: .seconds(100)) }
        paused.becameActive(now: .seconds(100))
        pausedLater.becameActive(now: .seconds(100))
        let measured = [running.end(now: .seconds(101)), paused.end(now: .seconds(101)), pausedLater.end(now: .seconds(101))]
        #expect(measured == [.seconds(3), .seconds(1), .seconds(2)])
    }

    @Test("becoming active leaves a timer as it is that has run all the time; no clock makes a duration negative (R53, R54, D8)")
    func runningTimerIsNotBegunAgain() {
        var watch = Stopwatch(now: .seconds(1))
        for second in [10, 20] { watch.becameActive(now: .seconds(second)) }
        var backwards = Stopwatch(now: .seconds(5))
        let measured = [watch.end(now: .seconds(21)), backwards.end(now: .seconds(4))]
        #expect(measured == [.seconds(20), .zero])
    }

    @Test("a hundred thousand run beside each other, and all follow the app; one that has ended, or that nobody keeps, is gone (C9, R54)")
    func anyNumberMayRun() async throws {
        let test = try TestClient()
        let timers = (0..<100_000).map { _ in test.client.startTimer("load") }
        test.client.handle(.didEnterBackground)
        test.clock.advance(by: .seconds(60))
        test.client.handle(.didBecomeActive)
        test.clock.advance(by: .milliseconds(1_500))
        for timer in timers.suffix(2) { timer.end() }
        _ = test.client.startTimer("dropped")
        #expect(test.client.timers.count == 99_998)
        withExtendedLifetime(timers) {}
        _ = await test.client.flush()
        let body = String(decoding: try #require(test.transport.batches.first).body, as: UTF8.self)
        #expect(body.ranges(of: #""properties":{"$event_duration":1.5}"#).count == 2)
    }

    @Test("ending tracks the event with its duration in seconds, whatever the wall clock says (R53)")
    func endingTracks() async throws {
        let test = try TestClient()
        let (timer, other) = (test.client.startTimer("load"), test.client.startTimer("load"))
        test.clock.advance(by: .milliseconds(1_500))
        timer.pause()
        test.clock.advance(by: .seconds(60))
        timer.resume()
        test.clock.advance(by: .milliseconds(250))
        #expect(timer.end(properties: ["size": 1]) != nil)
        #expect(timer.end() == nil, "it has ended")
        other.end()
        _ = await test.client.flush()
        #expect(test.transport.batches.flatMap(\.names) == ["load", "load"])
        let body = String(decoding: try #require(test.transport.batches.first).body, as: UTF8.self)
        #expect(body.contains(#""properties":{"$event_duration":1.75,"size":1}"#))
        #expect(body.contains(#""properties":{"$event_duration":61.75}"#), "two may have one name")
    }
}
