import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// How a session ends with the process, told or not.
extension EventClientLifecycleTests {
    @Test("when willTerminate returns all is stored, the end too, though the network hangs (R37–R39, D7)")
    func terminationStores() async throws {
        let test = try TestClient()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.handle(.didBecomeActive)
        async let report = test.client.flush()
        await test.transport.requests(1)
        for index in 0..<500 { test.client.track("event \(index)") }
        test.client.handle(.willTerminate)
        #expect(test.client.file.counters.waiting == 502)
        _ = await test.client.shutdown(within: .zero)
        #expect(await report.failure != nil)
    }

    @Test("a termination that follows the background waits for what was tracked there, as one that comes from the foreground (R37)")
    func terminationInTheBackgroundStores() async throws {
        let test = try TestClient { $0.uploadOnlyInBackground() }
        test.client.attach(ScriptedApplication(grants: false))
        test.client.handle(.didBecomeActive)
        test.client.handle(.didEnterBackground)
        try await test.client.writer.barrier()
        let mayGoOn = try await test.holdWriter()
        test.client.track("in the background")
        async let returned: Int64 = blocking { [client = test.client] in
            client.handle(.willTerminate)
            return client.file.counters.waiting
        }
        // The bound, which this clock never reaches.
        await test.clock.scheduled(1)
        mayGoOn.signal()
        #expect(try await returned == 3)
        await test.client.shutdown(within: .zero)
    }

    @Test("a store that hangs holds a terminating app for 500 ms, not longer (R38)")
    func terminationIsBounded() async throws {
        let test = try TestClient()
        try test.refuseCommits(true)
        let client = test.client
        client.track("stuck")
        async let returned: Void = blocking { client.handle(.willTerminate) }
        // The commit's next attempt, and the bound.
        await test.clock.scheduled(2)
        #expect(test.clock.pending.contains(.milliseconds(500)), "nor shorter")
        test.clock.advance(by: .milliseconds(500))
        try await returned
        #expect(client.file.counters.waiting == 0)
    }

    @Test("whoever is told to terminate waits, also if another thread was told before (R38)")
    func everyTerminationWaits() async throws {
        let test = try TestClient()
        try test.refuseCommits(true)
        let client = test.client
        client.track("stuck")
        async let first: Void = blocking { client.handle(.willTerminate) }
        await test.clock.scheduled(2)
        let returned = Locked(0)
        let ready = Gate()
        async let others: [Void] = onThreads(20) { _ in
            ready.blockUntilOpen()
            client.handle(.willTerminate)
            returned.withLock { $0 += 1 }
        }
        await ready.waitForArrivals(20)
        ready.open()
        // Time for those who would not wait.
        for _ in 0..<50 { await Task.yield() }
        #expect(returned.withLock { $0 } == 0)
        test.clock.advance(by: .milliseconds(500))
        try await first
        _ = await others
        #expect(returned.withLock { $0 } == 20)
    }

    @Test("a second willTerminate after the first has nothing to wait for (R38, D7)")
    func secondTerminationReturns() async throws {
        let test = try TestClient()
        let client = test.client
        client.track("last")
        try await blocking {
            client.handle(.willTerminate)
            client.handle(.willTerminate)
        }
        #expect(client.file.counters.waiting == 1 && test.clock.pending.isEmpty)
    }

    private func copyOfFiles(_ test: TestClient) throws -> TemporaryDirectory {
        let copy = TemporaryDirectory()
        try FileManager.default.copyItem(atPath: test.directory.path + "/queue", toPath: copy.path + "/queue")
        return copy
    }

    @Test("a session that a crash ended gets its end at the next start, with the last known activity, once (R43)")
    func endIsRecovered() async throws {
        let test = try TestClient()
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        test.clock.advance(by: .seconds(20))
        try await test.track(0..<1)
        // The marker is written after the commit that the first barrier saw, and before the second.
        try await test.client.writer.barrier()
        let files = try copyOfFiles(test)
        test.client.handle(.didEnterBackground)
        try await test.client.writer.barrier()
        let told = try #require(try test.client.file.nextBatch(.oldest(limit: 9), maximumBytes: .max, now: 0).events.dropFirst(2).first)

        let next = try TestClient(directory: files)
        #expect(await next.client.flush().stored == 3)
        let end = try #require(next.transport.batches.last?.scanned.events.last)
        #expect(next.transport.batches.flatMap(\.names) == ["$AppStart", "event 0", "$AppEnd"])
        #expect(properties(next).last == #"{"$recovered":true}"#)
        #expect(end.time == TestClock.start + 20_000)
        #expect(end.id == told.id, "the end that was told and the recovered one are one event")
        try await next.client.writer.barrier()
        _ = await next.client.shutdown(within: .zero)
        let third = try TestClient(directory: files)
        #expect(await third.client.flush().stored == 0)
    }

    @Test("a session that ended is not ended again, be its end delivered or not", arguments: [false, true])
    func endedSessionIsNotRecovered(isDelivered: Bool) async throws {
        let directory = TemporaryDirectory()
        let test = try TestClient(directory: directory)
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        test.client.handle(.willTerminate)
        if isDelivered { #expect(await test.client.flush().stored == 2) }
        _ = await test.client.shutdown(within: .zero)
        let next = try TestClient(directory: directory)
        #expect(await next.client.flush().stored == (isDelivered ? 0 : 2))
        #expect((isDelivered ? test : next).transport.batches.flatMap(\.names) == ["$AppStart", "$AppEnd"])
    }

    @Test("what is stored behind a session's end begins no session again")
    func endedSessionStaysEnded() async throws {
        let test = try TestClient()
        test.client.handle(.didBecomeActive)
        try await test.client.writer.barrier()
        test.client.handle(.didEnterBackground)
        try await test.client.writer.barrier()
        test.clock.advance(by: .seconds(2))
        try await test.client.trackDurably("in the background")
        // The marker is written behind the commit.
        try await test.client.writer.barrier()
        #expect(try test.client.file.openSession() == nil)
        _ = await test.client.shutdown(within: .zero)
    }
}
