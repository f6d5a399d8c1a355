import Dispatch
import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A clock that jumps, and an old copy of a queue (I2, I7, R58, D15)", .endsWhenItHangs)
struct ClockAndCopyTests {
    @Test("an action that hangs, as on a disk or in code of the app's, delays no other one (D6)")
    func actionsDelayNoOther() async throws {
        let (hanging, mayEnd, others) = (Gate(), DispatchSemaphore(value: 0), AwaitedCount())
        let clock = SystemClock()
        _ = clock.schedule(after: .zero) {
            hanging.open()
            mayEnd.wait()
        }
        try await blocking { hanging.blockUntilOpen() }
        _ = clock.schedule(after: .milliseconds(1)) { others.set(1) }
        await others.reaches(1)
        mayEnd.signal()
    }

    @Test("any delay can be asked for", arguments: [.seconds(1e19), .seconds(-1e19), .seconds(Int64.max), .zero] as [Duration])
    func anyDelayIsTaken(delay: Duration) {
        SystemClock().schedule(after: delay) {}.cancel()
    }

    @Test("a wall clock that is set back or ahead changes neither order nor times that were given (I7, R58, D15)")
    func clockJumpKeepsTheOrder() async throws {
        let test = try TestClient()
        let day: Int64 = 86_400_000
        for (name, jump) in [("now", 0), ("yesterday", -day), ("next year", 366 * day), ("now again", -365 * day)] {
            test.clock.moveWallClock(by: .milliseconds(jump))
            test.client.track(name)
        }
        #expect(await test.client.flush().stored == 4)
        let events = test.transport.batches.flatMap(\.scanned.events)
        #expect(test.transport.batches.flatMap(\.names) == ["now", "yesterday", "next year", "now again"])
        #expect(events.compactMap(\.sequence) == [1, 2, 3, 4])
        #expect(events.map(\.time) == [0, -day, 365 * day, 0].map { TestClock.start + $0 })
    }

    @Test("what the app's code takes to add to an event does not move its time (R58)", arguments: [true, false])
    func userCodeDoesNotMoveTheTime(isEnriched: Bool) async throws {
        let clock = TestClock()
        let test = try TestClient(clock: clock) {
            if isEnriched {
                $0.enrichers = [
                    { draft in
                        clock.advance(by: .seconds(2))
                        return draft
                    }
                ]
            } else {
                $0.enrichers.append {
                    clock.advance(by: .seconds(2))
                    return $0
                }
            }
        }
        test.client.track("slow")
        try await test.client.trackDurably("slow, too")
        #expect(await test.client.flush().stored == 2)
        #expect(test.transport.batches.flatMap(\.scanned.events).map(\.time) == [TestClock.start, TestClock.start + 2_000])
        await test.client.shutdown(within: .zero)
    }

    #if os(Linux)
    @Test("the machine's monotonic clock is the one that nobody sets (R51, R53)")
    func systemClockIsMonotonic() {
        func read() -> Duration {
            var time = timespec()
            clock_gettime(CLOCK_MONOTONIC, &time)
            return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
        }
        let before = read()
        let monotonic = SystemClock().monotonic
        #expect(before <= monotonic && monotonic <= read())
    }
    #endif

    @Test("a wall clock that is set back or ahead changes no duration, of a timer or of a session (R51, R53)", arguments: [-3_600, 3_600])
    func clockJumpIsNotMeasured(seconds: Int) async throws {
        let test = try TestClient()
        test.client.handle(.didBecomeActive)
        let load = test.client.startTimer("load")
        test.clock.advance(by: .seconds(2))
        test.clock.moveWallClock(by: .seconds(seconds))
        load.end()
        test.client.handle(.willTerminate)
        #expect(await test.client.flush().stored == 3)
        let measured = test.transport.batches.flatMap(\.scanned.events).dropFirst().map { String(decoding: $0.properties, as: UTF8.self) }
        #expect(measured == Array(repeating: #"{"$event_duration":2.0}"#, count: 2))
    }

    @Test("an old copy of the directory sends what had been delivered again: found as duplicates, stored once (I2)")
    func restoredCopyStoresNothingTwice() async throws {
        let server = try IngestStandIn()
        let directory = TemporaryDirectory()
        let queue = directory.path + "/queue"
        func client() throws -> EventClient {
            var configuration = EventClient.Configuration(server: server.url, writeKey: "k", queueDirectory: queue)
            configuration.uploads.interval = nil
            // On this clock no shutdown runs out of time: the files are closed when it returns, however busy the machine is.
            return try EventClient.start(configuration, clock: TestClock()) { CurlTransport() }
        }
        let first = try client()
        for index in 0..<3 { try await first.trackDurably("event \(index)") }
        _ = await first.shutdown(within: .zero)
        try FileManager.default.copyItem(atPath: queue, toPath: directory.path + "/copy")
        let second = try client()
        #expect(await second.flush().stored == 3)
        _ = await second.shutdown(within: .zero)
        try FileManager.default.removeItem(atPath: queue)
        try FileManager.default.moveItem(atPath: directory.path + "/copy", toPath: queue)
        let restored = try client()
        try await restored.trackDurably("later")
        #expect(await restored.flush() == FlushReport(stored: 1, duplicates: 3, deadLettered: 0, remaining: 0, failure: nil))
        #expect(server.stored.count == 4)
        _ = await restored.shutdown(within: .zero)
    }
}
