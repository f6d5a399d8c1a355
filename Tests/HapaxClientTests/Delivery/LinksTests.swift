import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Every link drains a queue (I1, I8, I15)", .endsWhenItHangs)
struct LinksTests {
    private func client(_ events: Int, configure: (inout EventClient.Configuration) -> Void = { _ in }) async throws -> TestClient {
        let test = try TestClient {
            $0.batchSizeGrows = true
            configure(&$0)
        }
        try await test.track(0..<events)
        return test
    }

    @Test("batches double while they are full and answered within a third of the deadline, to a thousand events (R10)")
    func batchesGrow() async throws {
        let test = try await client(4_000)
        #expect(await test.client.flush().stored == 4_000)
        #expect(test.transport.batches.map(\.ids.count) == [50, 100, 200, 400, 800, 1_000, 1_000, 450])
        let slow = try await client(300)
        slow.transport.script { [clock = slow.clock] batch in
            clock.advance(by: .milliseconds(110) * batch.ids.count)
            return .success(batch.receipt())
        }
        #expect(await slow.client.flush().stored == 300)
        #expect(slow.transport.batches.map(\.ids.count) == [50, 100, 100, 50], "100 take eleven of thirty seconds")
        let debug = try await client(3) {
            $0.debug.isOn = true; $0.debug.output = { _ in }
        }
        #expect(await debug.client.flush().remaining == 0 && debug.transport.batches.allSatisfy { $0.ids.count == 1 })
    }

    @Test("a link that carries few events within the deadline gets as many at once, in one flush, and no event is suspected")
    func slowLinkDrains() async throws {
        let test = try await client(200)
        test.transport.script { $0.ids.count > 7 ? .failure(.timedOut) : .success($0.receipt()) }
        let report = await test.client.flush()
        #expect(report.stored == 200 && report.remaining == 0 && report.failure == nil)
        #expect(test.transport.batches.prefix(4).map(\.ids.count) == [50, 25, 12, 6])
        #expect(test.transport.batches.count { $0.ids.count > 7 } <= 6, "and seldom tries more")
        #expect(try await test.client.deadLetters.list().isEmpty)
    }

    @Test("an outage in which requests hang ends in single events and backoffs, not in a pause of minutes (I16)")
    func hangingServerIsLeftAlone() async throws {
        let test = try await client(50)
        test.transport.script { _ in .failure(.timedOut) }
        let report = await test.client.flush()
        #expect(report.failure == .transport(.timedOut) && report.remaining == 50)
        #expect(test.transport.batches.map(\.ids.count) == [50, 25, 12, 6, 3, 1])
        #expect(test.clock.pending.allSatisfy { $0 <= .seconds(1) })
    }

    @Test("a proxy's limit halves the batch; on one event alone it pauses, and never makes a dead letter (I5)", arguments: [true, false])
    func proxyLimitIsObeyed(letsOnePass: Bool) async throws {
        let test = try await client(100)
        test.transport.script { batch in
            batch.ids.count > (letsOnePass ? 10 : 0)
                ? .success(TransportAnswer(status: 413, body: Array("<html>".utf8))) : .success(batch.receipt())
        }
        let report = await test.client.flush()
        #expect(report.stored == (letsOnePass ? 100 : 0) && (report.failure == nil) == letsOnePass)
        #expect(try await test.client.deadLetters.list().isEmpty && report.remaining == 100 - report.stored)
        if !letsOnePass { #expect(test.clock.pending == [DeliveryStateMachine.probeInterval]) }
    }

    @Test(
        "an event that is to be sent again for ever keeps no other one back, also alone in its batch; the server hears that it is held (I12)",
        arguments: [1, 50])
    func retriedEventHoldsNothingUp(size: Int) async throws {
        let test = try await client(200) {
            $0.batchSize = size
            $0.batchSizeGrows = size > 1
        }
        test.transport.script { batch in .success(batch.receipt { $0.sequence == 1 ? .retry : .stored }) }
        var (stored, flushes) = (0, 0)
        while stored < 199, flushes < 3 {
            stored += await test.client.flush().stored
            flushes += 1
        }
        #expect(stored == 199 && flushes <= 2)
        let report = await test.client.flush()
        #expect(report.remaining == 1 && report.failure == .askedToRetry(events: 1))
        let second = try #require(test.transport.batches.first { !$0.sequences.contains(1) })
        #expect(second.scanned.envelope.held == [1...1])
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().remaining == 0)
    }

    @Test("a server that keeps most of each batch is in trouble: one request a backoff (I16)")
    func mostlyRetriedIsTrouble() async throws {
        let test = try await client(200)
        test.transport.script { batch in .success(batch.receipt { $0.sequence == batch.sequences.first ? .stored : .retry }) }
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.count == 1 && test.clock.pending.count == 1)
    }

    @Test("a request with a shorter deadline holds fewer events, in proportion (R33)")
    func shortDeadlinesHoldLess() {
        let size = BatchSize(first: 600, grows: true)
        #expect([3, 10, 30, 60].map { size.limit(within: .seconds($0), of: .seconds(30)) } == [60, 200, 600, 600])
        var short = size
        #expect(
            short.wasTooMuch(60, of: 60) && short.events == 300,
            "what is too much in the background halves, and is not taken for all there is")
        #expect(short.wasTooMuch(40, of: 300) && short.events == 20, "cut by its bytes")
        #expect(BatchSize(first: 1, grows: true).limit(within: .seconds(3), of: .seconds(30)) == 1)
    }
}
