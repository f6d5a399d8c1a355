import HapaxModel
import Testing

@testable import HapaxClient

@Suite("EventTimers (R53, R54)", .timeLimit(.minutes(3)), .endsWhenItHangs)
struct EventTimersTests {
    @Test("measures what runs and not what is paused (R53)")
    func pausesAreNotMeasured() {
        var timers = EventTimers()
        let answer1 = timers.start("load", now: .seconds(10))
        #expect(answer1)
        timers.pause("load", now: .seconds(13))
        timers.pause("load", now: .seconds(20))
        timers.resume("load", now: .seconds(30))
        timers.resume("load", now: .seconds(31))
        let answer2 = timers.end("load", now: .seconds(34))
        #expect(answer2 == .seconds(7))
        let answer3 = timers.end("load", now: .seconds(40))
        #expect(answer3 == nil, "ended")
    }

    @Test("a timer that is started again begins at zero; an unknown one is nothing (R53)")
    func startingAgainBeginsAtZero() {
        var timers = EventTimers()
        timers.pause("load", now: .zero)
        timers.resume("load", now: .zero)
        let answer4 = timers.end("load", now: .zero)
        #expect(answer4 == nil)
        _ = timers.start("load", now: .zero)
        _ = timers.start("load", now: .seconds(5))
        let answer5 = timers.end("load", now: .seconds(6))
        #expect(answer5 == .seconds(1))
    }

    @Test("the background pauses what runs; becoming active resumes exactly that (R54, D8)")
    func backgroundIsNotMeasured() {
        var timers = EventTimers()
        for name in ["running", "paused", "pausedLater", "endedLater"] { _ = timers.start(name, now: .zero) }
        timers.pause("paused", now: .seconds(1))
        timers.enteredBackground(now: .seconds(2))
        timers.pause("pausedLater", now: .seconds(3))
        let answer6 = timers.end("endedLater", now: .seconds(4))
        #expect(answer6 == .seconds(2))
        timers.becameActive(now: .seconds(100))
        let answer7 = timers.end("running", now: .seconds(101))
        #expect(answer7 == .seconds(3), "goes on, and does not begin again")
        let answer8 = timers.end("paused", now: .seconds(101))
        #expect(answer8 == .seconds(1))
        let answer9 = timers.end("pausedLater", now: .seconds(101))
        #expect(answer9 == .seconds(2), "its user paused it while it stood still")
    }

    @Test("becoming active leaves a timer as it is that has run all the time; no clock makes a duration negative (R53, R54, D8)")
    func runningTimerIsNotBegunAgain() {
        var timers = EventTimers()
        timers.enteredBackground(now: .zero)
        _ = timers.start("in the background", now: .seconds(1))
        timers.becameActive(now: .seconds(10))
        timers.becameActive(now: .seconds(20))
        let answer12 = timers.end("in the background", now: .seconds(21))
        #expect(answer12 == .seconds(20))
        _ = timers.start("backwards", now: .seconds(5))
        let answer13 = timers.end("backwards", now: .seconds(4))
        #expect(answer13 == .zero)
    }

    @Test("there is room for 1,000, not for one more (I13)")
    func timersAreBounded() {
        var timers = EventTimers()
        for index in 1..<EventTimers.maximumTimers { _ = timers.start("\(index)", now: .zero) }
        let answer10 = timers.start("last", now: .zero)
        #expect(answer10)
        let answer11 = timers.start("one more", now: .zero)
        #expect(!answer11)
        let answer12 = timers.start("last", now: .zero)
        #expect(answer12, "starting again needs no room")
    }

    @Test("ending tracks the event with its duration in seconds, whatever the wall clock says (R53)")
    func endingTracks() async throws {
        let test = try TestClient()
        test.client.startTimer("load")
        test.clock.advance(by: .milliseconds(1_500))
        test.client.pauseTimer("load")
        test.clock.advance(by: .seconds(60))
        test.client.resumeTimer("load")
        test.clock.advance(by: .milliseconds(250))
        test.client.endTimer("load", properties: ["size": 1])
        test.client.endTimer("load")
        _ = await test.client.flush()
        #expect(test.transport.batches.flatMap(\.names) == ["load", "load"])
        let body = String(decoding: try #require(test.transport.batches.first).body, as: UTF8.self)
        #expect(body.contains(#""properties":{"$event_duration":1.75,"size":1}"#))
        #expect(body.contains(#""properties":{}"#), "an event that was not measured is tracked all the same")
    }
}
