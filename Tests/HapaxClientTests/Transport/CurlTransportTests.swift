import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("CurlTransport over real sockets (R5, R6, D6, I5)", .endsWhenItHangs)
struct CurlTransportTests {
    @Test("keeps what every transport promises", arguments: TransportRule.all)
    func keepsTheContract(rule: TransportRule) async throws {
        try await rule.check { CurlTransport() }
    }

    @Test("whatever is asked at once, one host sees five connections at most (R5)")
    func connectionsAreFew() async throws {
        let server = try LoopbackServer { _ in .answer(TransportRule.ok) }
        defer { server.stop() }
        let transport = CurlTransport()
        let answered = await withTaskGroup(of: Bool.self) { group in
            for number in 0..<32 {
                let request = TransportRule.request(server.url, body: [UInt8(number)])
                group.addTask { (try? await transport.send(request).get())?.status == 200 }
            }
            return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
        }
        #expect(answered == 32 && server.requests.count == 32)
        #expect((1...5).contains(server.connections))
    }

    @Test("a program that the host starts inherits no connection (C19)")
    func connectionIsClosedOnExec() async throws {
        let flags = Locked<[Int32]>([])
        let port = Locked<UInt16>(0)
        let server = try LoopbackServer { _ in
            // Other tests' servers raise the limit, so this one may lie high.
            for descriptor in 3..<Int32(clamping: min(sysconf(Int32(_SC_OPEN_MAX)), 1 << 16)) {
                var (address, length) = (sockaddr_in(), socklen_t(MemoryLayout<sockaddr_in>.size))
                let isPeer = withUnsafeMutableBytes(of: &address) {
                    getpeername(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length) == 0
                }
                guard isPeer, address.sin_port.byteSwapped == port.withLock({ $0 }) else { continue }
                flags.withLock { $0.append(fcntl(descriptor, F_GETFD)) }
            }
            return .answer(TransportRule.ok)
        }
        defer { server.stop() }
        port.withLock { $0 = UInt16(URL(string: server.url)?.port ?? 0) }
        _ = try await CurlTransport().send(TransportRule.request(server.url, body: [1])).get()
        #expect(flags.withLock { $0 } == [FD_CLOEXEC])
    }

    @Test("requests that wait leave in the order in which they came (R5)")
    func requestsLeaveInOrder() async throws {
        let mayAnswer = Gate()
        let server = try LoopbackServer { request in
            if request.body == [0] { mayAnswer.blockUntilOpen() }
            return .answer(TransportRule.ok)
        }
        defer { server.stop() }
        let transport = CurlTransport()
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { _ = try await transport.send(TransportRule.request(server.url, body: [0])).get() }
            await mayAnswer.waitForArrivals(1)
            for number in 1...5 {
                group.addTask { _ = try await transport.send(TransportRule.request(server.url, body: [UInt8(number)])).get() }
                while transport.waiting < number { await Task.yield() }
            }
            mayAnswer.open()
            try await group.waitForAll()
        }
        #expect(server.requests.map(\.body) == (0...5).map { [UInt8($0)] })
    }

    @Test("a request for which there is no thread is refused, and the next one tries again; one is enough for all (I15, I16)")
    func missingThreadIsTold() async throws {
        let server = try LoopbackServer { _ in .answer(TransportRule.ok) }
        defer { server.stop() }
        let starts = Locked(0)
        let transport = CurlTransport { body in
            let isLeft = starts.withLock { starts in
                starts += 1
                return starts > 2
            }
            if isLeft { Thread.detachNewThread(body) }
            return isLeft
        }
        for _ in 0..<2 { #expect(TransportRule.failure(await transport.send(TransportRule.request(server.url))) == .outOfResources) }
        for _ in 0..<2 { #expect(try await transport.send(TransportRule.request(server.url)).get().status == 200) }
        #expect(starts.withLock { $0 } == 3)
    }

    @Test("an answer's header is bounded as well (I13)")
    func largeHeaderIsRefused() async throws {
        let server = try LoopbackServer { request in
            let lines = String(
                repeating: "X-Fill: " + String(repeating: "x", count: 1_000) + "\r\n", count: request.head.contains("/over") ? 65 : 60)
            return .answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + lines + "\r\n")
        }
        defer { server.stop() }
        let transport = CurlTransport()
        #expect(try await transport.send(TransportRule.request(server.url)).get().status == 200)
        #expect(TransportRule.failure(await transport.send(TransportRule.request(server.url + "/over"))) == .answerTooLarge)
    }

    @Test("an interim answer's headers are not the answer's")
    func interimAnswerIsSkipped() async throws {
        let server = try LoopbackServer { _ in .answer("HTTP/1.1 103 Early Hints\r\nRetry-After: 99\r\n\r\n" + TransportRule.ok) }
        defer { server.stop() }
        let answer = try await CurlTransport().send(TransportRule.request(server.url)).get()
        #expect(answer.status == 200)
        #expect(answer.headers["retry-after"] == nil)
    }

    @Test("a client delivers over it, compressed, and settles by the receipt (end to end on loopback)")
    func clientDeliversOverSockets() async throws {
        let server = try LoopbackServer { request in
            guard
                let batch = SentBatch(
                    TransportRequest(url: "", headers: [("Content-Encoding", "gzip")], body: request.body, timeout: .seconds(1)))
            else { return .answer("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n") }
            let body = String(decoding: batch.receipt().body, as: UTF8.self)
            return .answer("HTTP/1.1 200 OK\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
        }
        defer { server.stop() }
        let directory = TemporaryDirectory()
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:\(server.port)/", writeKey: "k", queueDirectory: directory.path + "/queue")
        configuration.uploads.interval = nil
        let client = try EventClient.start(configuration)
        for index in 0..<130 { client.track("event", properties: ["index": index]) }
        let report = await client.flush()
        #expect(report == FlushReport(stored: 130, duplicates: 0, deadLettered: 0, remaining: 0, failure: nil))
        // More than two if a hundred are stored before the others: then a policy sends them at once.
        #expect(server.requests.count >= 2 && server.connections == 1)
        #expect(server.requests.allSatisfy { $0.head.contains("Content-Encoding: gzip") })
        _ = await client.shutdown(within: .seconds(1))
    }
}
