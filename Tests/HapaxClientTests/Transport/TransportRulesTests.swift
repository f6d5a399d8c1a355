import HapaxModel
import HapaxTestKit
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("How the client uses its transport (R4–R7, R16, R25, R27, I14)", .endsWhenItHangs)
struct TransportRulesTests {
    @Test("a request has 30 s, unless set otherwise (R5)", arguments: [nil, Duration.seconds(3)])
    func requestHasItsTimeout(set: Duration?) async throws {
        let test = try TestClient { if let set { $0.requestTimeout = set } }
        try await test.track(0..<1)
        _ = await test.client.flush()
        #expect(test.transport.batches.map(\.request.timeout) == [set ?? .seconds(30)])
    }

    @Test("the next request leaves only when the last answer is settled (R5, R9)")
    func answersAreHandledInTurn() async throws {
        let test = try TestClient { $0.batchSize = 1 }
        let depths = Locked<[Int64]>([])
        test.transport.script { [queue = test.client.file] batch in
            depths.withLock { $0.append(queue.counters.waiting) }
            return .success(batch.receipt())
        }
        try await test.track(0..<3)
        _ = await test.client.flush()
        #expect(depths.withLock { $0 } == [3, 2, 1])
    }

    @Test("a rest that the server asked for outlasts a purge, for policies; who asks for an upload ends it, and its success (I16)")
    func serversRestOutlastsAPurge() async throws {
        let test = try TestClient {
            $0.uploads.bulkSize = 1
            $0.uploads.interval = .seconds(3_600)
        }
        test.transport.script { _ in .success(.problem(.overloaded, headers: ["retry-after": "120"])) }
        try await test.track(0..<1)
        await test.transport.requests(1)
        await test.client.delivery.restBegins()
        _ = try await test.client.purge()
        test.transport.script { .success($0.receipt()) }
        await test.client.delivery.uploadWanted()
        test.client.track("later")
        try await test.client.waitUntilStored()
        await test.client.delivery.uploadWanted()
        await test.client.delivery.restBegins()
        #expect(test.transport.batches.count == 1)
        #expect(await test.client.flush().stored == 1)
        test.client.track("last")
        await test.transport.requests(3)
        await test.client.shutdown(within: .zero)
    }

    @Test("what is not stored is not uploaded: nothing goes straight from memory (R7)")
    func unstoredEventIsNotUploaded() async throws {
        let test = try TestClient {
            $0.uploads.interval = .seconds(15)
            $0.uploads.bulkSize = 1
        }
        try test.refuseCommits(true)
        test.client.track("$AppStart")
        // The periodic timer, and the next attempt to store.
        await test.clock.scheduled(2)
        test.client.updateUploads { $0.interval = .seconds(60) }
        #expect(await test.client.delivery.drain().next == .drained)
        #expect(test.transport.batches.isEmpty)
        try test.refuseCommits(false)
        test.clock.advance(by: .seconds(5))
        await test.transport.requests(1)
        #expect(await test.client.flush().remaining == 0)
        #expect(test.transport.batches.map(\.names) == [["$AppStart"]])
    }

    @Test("events are encoded and stored on another thread than the one that tracks (R4, R8)")
    func encodingIsOffTheCallersThread() async throws {
        let encoding = Locked<ThreadName?>(nil)
        let committed = Gate()
        let writer = QueueWriter(
            intake: Locked(Intake(capacity: 10)), clock: TestClock(),
            immediateEvents: { [] },
            encode: { event, base in
                encoding.withLock { $0 = .current }
                return event.encoded(over: base)
            },
            commit: { events, _, whenCommitted in
                whenCommitted()
                committed.open()
                return QueueWriter.Committed(depth: events.count)
            }, stored: { _ in })
        let caller = try await blocking {
            _ = writer.intake.withLock { $0.admit(name: "e", properties: [:], id: .made, time: nil, distinctID: "u", now: 0) }
            writer.wake()
            // Its thread stays its own until the event is encoded.
            committed.blockUntilOpen()
            return ThreadName.current
        }
        #expect(encoding.withLock { $0 } != nil)
        #expect(encoding.withLock { $0 } != caller)
    }

    @Test("a failure is logged with status and cause, and neither event nor key (R6, I14)")
    func failuresAreLoggedWithoutContent() async throws {
        let log = RecordedLog()
        let test = try TestClient {
            $0.writeKey = "secret-key"
            $0.logger = Logger(label: "test") { _ in log }
        }
        test.client.track("secret-name", properties: ["secret-property": "secret-value"], distinctID: "secret-user")
        for answer in [401, 503, 200] {
            test.transport.script { _ in
                .success(TransportAnswer(status: answer, headers: ["content-type": "text/html"], body: Array("secret-body".utf8)))
            }
            #expect(await test.client.flush().remaining == 1)
        }
        let lines = log.lines
        #expect(lines.count == 3)
        for (line, status) in zip(lines, ["401", "503", "200"]) {
            #expect(
                line.hasPrefix(status == "401" ? "error The server refuses " : "info Upload failed ") && line.contains(status)
                    && !line.contains("secret"))
        }
    }

    @Test("each kind of failed request has its own words in the log (R6)")
    func causesAreLogged() async throws {
        let failures: [TransportFailure] = [
            .unknownHost, .cannotConnect, .timedOut, .tls, .cut, .answerTooLarge, .outOfResources, .other(99),
        ]
        let log = RecordedLog()
        let test = try TestClient { $0.logger = Logger(label: "test") { _ in log } }
        try await test.track(0..<1)
        for failure in failures {
            test.transport.script { _ in .failure(failure) }
            #expect(await test.client.flush().failure == .transport(failure))
        }
        #expect(log.lines.count == failures.count && Set(log.lines).count == failures.count)
        for (line, failure) in zip(log.lines, failures) { #expect(line.contains(failure.description)) }
        await test.client.shutdown(within: .zero)
    }

    @Test("names of immediate events can change while the client runs (R25)")
    func immediateEventsChange() async throws {
        let test = try TestClient { $0.uploads.interval = .seconds(15) }
        try await test.track(0..<1)
        #expect(test.transport.batches.isEmpty)
        test.client.updateUploads { $0.immediateEvents = ["order_paid"] }
        #expect(test.client.uploads.immediateEvents == ["order_paid"])
        test.client.track("order_paid")
        await test.transport.requests(1)
        #expect(test.transport.batches[0].names == ["event 0", "order_paid"])
        await test.client.delivery.restBegins()
        test.client.track("$AppStart")
        // Who uploads is told behind those who wait for the commit.
        for _ in 0..<3 { try await test.client.writer.barrier() }
        await test.client.delivery.restBegins()
        #expect(test.transport.batches.count == 1)
    }

    @Test(
        "a dispatch by hand is possible at any time: in a backoff, in a pause, in the background, over any network, with uploads off (R27)")
    func manualDispatchIsAlwaysPossible() async throws {
        let test = try TestClient {
            $0.network = { .cellular2G }
            $0.uploads.interval = nil
        }
        for status in [503, 401] {
            test.client.track("event")
            test.transport.script { _ in .success(TransportAnswer(status: status)) }
            #expect(await test.client.flush().remaining == 1)
            test.transport.script { .success($0.receipt()) }
            #expect(await test.client.flushNextBatch() == .good(more: false), "in the rest after \(status)")
        }
        test.client.attach(ScriptedApplication(isInBackground: true))
        test.client.track("in the background")
        #expect(await test.client.flush().remaining == 0)
    }

    @Test("a queue file that cannot be opened is never deleted (D17)")
    func unusableFileIsKept() throws {
        let directory = TemporaryDirectory()
        let queue = directory.path + "/queue"
        try Files.write([UInt8](repeating: 0x55, count: 8_192), to: queue + "/1.sqlite")
        let client = try? TestClient(directory: directory)
        #expect(Files.contents(of: queue).contains([UInt8](repeating: 0x55, count: 8_192)), "in its place or renamed")
        _ = client
    }
}
