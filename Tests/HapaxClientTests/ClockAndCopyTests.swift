import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A clock that jumps, and an old copy of a queue (I2, I7, R58, D15)")
struct ClockAndCopyTests {
    /// A clock whose wall time can be set without touching the monotonic one.
    private struct SettableClock: ClientClock {
        let machine = ManualClock()
        let offset = Locked<Int64>(0)

        var unixMilliseconds: Int64 { machine.unixMilliseconds + offset.withLock { $0 } }
        var monotonic: Duration { machine.monotonic }
        func schedule(after delay: Duration, _ action: @escaping @Sendable () -> Void) -> any ScheduledAction {
            machine.schedule(after: delay, action)
        }
    }

    @Test("a wall clock that is set back or ahead changes neither order nor times that were given (I7, R58, D15)")
    func clockJumpKeepsTheOrder() async throws {
        let directory = TemporaryDirectory()
        let clock = SettableClock()
        let transport = ScriptedTransport()
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "k", queueDirectory: directory.path + "/queue")
        configuration.uploadsAutomatically = false
        let client = try EventClient.start(configuration, clock: clock) { transport }
        let day: Int64 = 86_400_000
        for (name, offset) in [("now", 0), ("yesterday", -day), ("next year", 365 * day), ("now again", 0)] {
            clock.offset.withLock { $0 = offset }
            client.track(name)
        }
        #expect(await client.flush().stored == 4)
        let events = transport.batches.flatMap(\.scanned.events)
        #expect(transport.batches.flatMap(\.names) == ["now", "yesterday", "next year", "now again"])
        #expect(events.compactMap(\.sequence) == [1, 2, 3, 4])
        #expect(events.map(\.time) == [0, -day, 365 * day, 0].map { ManualClock.start + $0 })
        _ = await client.shutdown(within: .zero)
    }

    @Test("an old copy of the directory sends what had been delivered again: found as duplicates, stored once (I2)")
    func restoredCopyStoresNothingTwice() async throws {
        let server = try IngestStandIn()
        let directory = TemporaryDirectory()
        let queue = directory.path + "/queue"
        func client() throws -> EventClient {
            var configuration = EventClient.Configuration(server: server.url, writeKey: "k", queueDirectory: queue)
            configuration.uploadsAutomatically = false
            return try EventClient.start(configuration)
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
