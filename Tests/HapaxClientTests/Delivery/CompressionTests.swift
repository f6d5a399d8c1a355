import Foundation
import HapaxModel
import HapaxTestKit
import Logging
import Testing

@testable import HapaxClient

@Suite("A proxy that spoils compressed requests costs no event (C3, D13)", .endsWhenItHangs)
struct CompressionTests {
    private let log = RecordedLog()

    /// What is said of a compressed body on its way.
    enum Proxy: CaseIterable, Sendable {
        case leavesTheHeader, stripsTheHeader, refusesGzip, isAFirewall

        var answer: TransportAnswer {
            switch self {
            case .leavesTheHeader: .problem(.invalidEncoding)
            case .stripsTheHeader: .problem(.malformed)
            case .refusesGzip: TransportAnswer(status: 415)
            case .isAFirewall: TransportAnswer(status: 403, body: Array("<html>".utf8))
            }
        }
    }

    private func client(_ events: Int, bytes: Int = 100, configure: (inout EventClient.Configuration) -> Void = { _ in }) async throws
        -> TestClient
    {
        let test = try TestClient {
            $0.logger = Logger(label: "test") { _ in log }
            configure(&$0)
        }
        for number in 0..<events {
            test.client.track("event \(number)", properties: ["fill": String(repeating: "x", count: bytes)])
        }
        try await test.client.writer.barrier()
        return test
    }

    @Test(
        "small bodies pass, all others are refused: every event is delivered, and the log says that nothing is compressed from now on",
        arguments: Proxy.allCases, [100, 2_000])
    func spoiledBodiesAreSentPlain(proxy: Proxy, bytes: Int) async throws {
        let test = try await client(60, bytes: bytes)
        test.transport.script { $0.isCompressed ? .success(proxy.answer) : .success($0.receipt()) }
        var report = await test.client.flush()
        for _ in 0..<3 where report.remaining > 0 { report = await test.client.flush() }
        let status = await test.client.status()
        #expect(status.stored == 60 && status.deadLettered == 0 && status.held == 0 && report.remaining == 0)
        let warnings = log.lines.filter { $0.hasPrefix("warning Compressed requests are refused") }
        if proxy != .isAFirewall || bytes > 1_024 {
            #expect(warnings.count == 1)
            let before = test.transport.batches.count
            test.client.track("large", properties: ["fill": String(repeating: "x", count: 3_000)])
            #expect(await test.client.flush().remaining == 0)
            #expect(test.transport.batches.dropFirst(before).map(\.isCompressed) == [false])
        }
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "behind such a proxy an event that the server itself refuses is still found, sent plain, and given up once another has passed plain",
        arguments: [Proxy.leavesTheHeader, .stripsTheHeader])
    func poisonIsStillFound(proxy: Proxy) async throws {
        let test = try await client(60)
        test.transport.script { batch in
            if batch.isCompressed { return .success(proxy.answer) }
            return batch.names.contains("event 7") ? .success(.problem(.malformed)) : .success(batch.receipt())
        }
        for _ in 0..<3 { _ = await test.client.flush() }
        let letters = try await test.client.deadLetters.list()
        #expect(letters.map(\.reason) == ["malformed"])
        #expect(await test.client.status().stored == 59)
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "where nothing is spoiled a poison event is found as before, no event is given up by a compressed request, and compression goes on")
    func healthyPathStaysCompressed() async throws {
        let test = try await client(200)
        test.transport.script { $0.names.contains("event 7") ? .success(.problem(.malformed)) : .success($0.receipt()) }
        #expect(await test.client.flush().deadLettered == 1)
        let last = try #require(test.transport.batches.last { $0.names.contains("event 7") })
        #expect(last.names == ["event 7"] && !last.isCompressed)
        for number in 0..<50 { test.client.track("late \(number)", properties: ["fill": String(repeating: "x", count: 100)]) }
        #expect(await test.client.flush().stored == 50)
        #expect(test.transport.batches.last?.isCompressed == true && log.lines.allSatisfy { !$0.contains("Compressed requests") })
        await test.client.shutdown(within: .zero)
    }

    @Test("what a compressed request accepts is no witness against an event that was refused")
    func compressedAcceptanceIsNoWitness() async throws {
        let first = try await client(1, bytes: 10)
        first.transport.script { _ in .success(.problem(.malformed)) }
        _ = await first.client.flush()
        #expect(await first.client.status().held == 1)
        for number in 0..<50 { first.client.track("late \(number)", properties: ["fill": String(repeating: "x", count: 100)]) }
        first.transport.script { $0.names.contains("event 0") ? .success(.problem(.malformed)) : .success($0.receipt()) }
        #expect(await first.client.flush().stored == 50)
        // What was accepted first is why it was given up.
        #expect(first.transport.batches.prefix(2).allSatisfy { !$0.isCompressed }, "while an event is held")
        #expect(await first.client.status().deadLettered == 1)
        await first.client.shutdown(within: .zero)
    }

    @Test("invalid_encoding of a request that was sent plain is the way's trouble: it pauses, and no event is held")
    func plainInvalidEncodingPauses() async throws {
        let test = try await client(3, bytes: 1)
        test.transport.script { _ in .success(.problem(.invalidEncoding)) }
        #expect(await test.client.flush().failure == .status(400, code: "invalid_encoding"))
        #expect(test.transport.batches.count == 1 && test.clock.pending == [DeliveryStateMachine.probeInterval])
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 3)
        await test.client.shutdown(within: .zero)
    }
}

extension SentBatch {
    fileprivate var isCompressed: Bool { request.headers.contains { $0.name == "Content-Encoding" } }
}
