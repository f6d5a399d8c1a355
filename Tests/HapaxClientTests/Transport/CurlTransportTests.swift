import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("CurlTransport over real sockets (R5, R6, D6, I5)", .timeLimit(.minutes(10)), .endsWhenItHangs)
struct CurlTransportTests {
    private static let ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

    /// - Parameter timeout: So long that no test but that of the deadline itself ends by it, however busy the machine is.
    private func request(_ url: String, body: [UInt8] = [1, 2, 3], timeout: Duration = .seconds(600)) -> TransportRequest {
        TransportRequest(
            url: url, headers: [("Authorization", "Bearer k"), ("Content-Type", "application/json")], body: body, timeout: timeout)
    }

    private func failure(_ result: Result<TransportAnswer, TransportFailure>) -> TransportFailure? {
        if case .failure(let failure) = result { failure } else { nil }
    }

    @Test("the body arrives as it is, zero bytes included, with its headers; the answer comes back whole")
    func requestAndAnswerAreWhole() async throws {
        let server = try LoopbackServer { _ in .answer(Self.ok) }
        defer { server.stop() }
        let transport = CurlTransport()
        let body = (0..<700_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
        let answer = try await transport.send(request(server.url, body: body)).get()
        #expect(answer.status == 200)
        #expect(answer.body == Array("{}".utf8))
        #expect(answer.headers["content-type"] == "application/json")
        let received = try #require(server.requests.first)
        #expect(received.body == body)
        #expect(received.head.hasPrefix("POST /v1/events HTTP/1.1\r\n"))
        #expect(received.head.contains("\r\nAuthorization: Bearer k"))
        #expect(!received.head.contains("Expect:"))
    }

    @Test("the connection is kept")
    func connectionIsKept() async throws {
        let server = try LoopbackServer { _ in .answer(Self.ok) }
        defer { server.stop() }
        let transport = CurlTransport()
        for _ in 0..<5 { _ = try await transport.send(request(server.url)).get() }
        #expect(server.requests.map(\.connection) == [1, 1, 1, 1, 1])
    }

    @Test("a kept connection that the server has closed does not cost an answer for ever")
    func closedConnectionIsReplaced() async throws {
        let server = try LoopbackServer { _ in .answerAndClose(Self.ok) }
        defer { server.stop() }
        let transport = CurlTransport()
        for _ in 0..<3 { _ = try await transport.send(request(server.url)).get() }
        #expect(server.connections == 3)
    }

    @Test("a request for which there is no thread is refused, and the next one tries again; one is enough for all (I15, I16)")
    func missingThreadIsTold() async throws {
        let server = try LoopbackServer { _ in .answer(Self.ok) }
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
        for _ in 0..<2 { #expect(failure(await transport.send(request(server.url))) == .outOfResources) }
        for _ in 0..<2 { #expect(try await transport.send(request(server.url)).get().status == 200) }
        #expect(starts.withLock { $0 } == 3)
    }

    @Test("redirects are not followed", arguments: [301, 307, 308])
    func redirectIsAnAnswer(status: Int) async throws {
        let server = try LoopbackServer { request in
            .answer("HTTP/1.1 \(status) Elsewhere\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n")
        }
        defer { server.stop() }
        #expect(try await CurlTransport().send(request(server.url)).get().status == status)
        #expect(server.requests.count == 1)
    }

    @Test("an answer cut at any byte is no answer (I5)")
    func cutAnswerIsAFailure() async throws {
        let transport = CurlTransport()
        for end in stride(from: 0, to: Self.ok.utf8.count, by: 3) {
            let server = try LoopbackServer { _ in .answerAndClose(String(decoding: Self.ok.utf8.prefix(end), as: UTF8.self)) }
            let result = await transport.send(request(server.url))
            #expect(failure(result) == .cut, "cut at \(end) \(result)")
            #expect(server.requests.count == 1, "the request arrived: its fate is unknown")
            server.stop()
        }
    }

    @Test("an answer over the limit is no answer (I13)")
    func largeAnswerIsRefused() async throws {
        let limit = EventLimits.maximumAnswerBytes
        let server = try LoopbackServer { request in
            let size = limit + (request.head.contains("/over") ? 1 : 0)
            return .answer("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n" + String(repeating: "x", count: size))
        }
        defer { server.stop() }
        let transport = CurlTransport()
        #expect(try await transport.send(request(server.url)).get().body.count == limit)
        #expect(failure(await transport.send(request(server.url + "/over"))) == .answerTooLarge)
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
        #expect(try await transport.send(request(server.url)).get().status == 200)
        #expect(failure(await transport.send(request(server.url + "/over"))) == .answerTooLarge)
    }

    @Test("a server that never answers is given up at the deadline (D6)")
    func silenceEndsAtTheDeadline() async throws {
        let server = try LoopbackServer { _ in .silence }
        defer { server.stop() }
        // Longer deadlines only for a machine so busy that the request did not arrive within the shorter ones.
        var timeout: Duration = .milliseconds(200)
        repeat {
            #expect(failure(await CurlTransport().send(request(server.url, timeout: timeout))) == .timedOut)
            timeout = timeout * 4
        } while server.requests.isEmpty && timeout < .seconds(60)
        #expect(server.requests.count == 1)
    }

    @Test("a deadline that has passed, however long ago, is one")
    func negativeDeadlineEndsAtOnce() async throws {
        let server = try LoopbackServer { _ in .silence }
        defer { server.stop() }
        #expect(failure(await CurlTransport().send(request(server.url, timeout: .seconds(Int64.min)))) == .timedOut)
    }

    @Test("closing ends what is under way, and not its deadline, and refuses what follows", .timeLimit(.minutes(5)))
    func closingAborts() async throws {
        let arrived = AsyncStream<Void>.makeStream()
        let server = try LoopbackServer { _ in
            arrived.continuation.yield()
            return .silence
        }
        defer { server.stop() }
        let transport = CurlTransport()
        async let hanging = transport.send(request(server.url))
        for await _ in arrived.stream { break }
        transport.close()
        #expect(failure(await hanging) == .aborted)
        #expect(failure(await transport.send(request(server.url))) == .aborted)
    }

    @Test("nobody listens: refused at once")
    func refusedConnectionIsAFailure() async throws {
        let server = try LoopbackServer { _ in .silence }
        server.stop()
        let transport = CurlTransport()
        // The port may be closed a moment after it was told to; either way nothing answers.
        let failure = failure(await transport.send(request("http://127.0.0.1:1/v1/events")))
        #expect(failure == .cannotConnect)
    }

    @Test("what is not HTTP is no answer")
    func foreignProtocolIsAFailure() async throws {
        let server = try LoopbackServer { _ in .answerAndClose("SSH-2.0-OpenSSH_9.2\r\n") }
        defer { server.stop() }
        #expect(failure(await CurlTransport().send(request(server.url))) == .cut)
    }

    @Test("an interim answer's headers are not the answer's")
    func interimAnswerIsSkipped() async throws {
        let server = try LoopbackServer { _ in .answer("HTTP/1.1 103 Early Hints\r\nRetry-After: 99\r\n\r\n" + Self.ok) }
        defer { server.stop() }
        let answer = try await CurlTransport().send(request(server.url)).get()
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
        configuration.uploadsAutomatically = false
        let client = try EventClient.start(configuration)
        for index in 0..<130 { client.track("event", properties: ["index": .integer(Int64(index))]) }
        let report = await client.flush()
        #expect(report == FlushReport(stored: 130, duplicates: 0, deadLettered: 0, remaining: 0, failure: nil))
        #expect(server.requests.count == 3 && server.connections == 1)
        #expect(server.requests.allSatisfy { $0.head.contains("Content-Encoding: gzip") })
        _ = await client.shutdown(within: .seconds(1))
    }
}
