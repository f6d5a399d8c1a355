import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// One sentence of what every transport promises (``EventTransport``), checked over real sockets on whichever is made.
struct TransportRule: Sendable, CustomTestStringConvertible {
    typealias Make = @Sendable () -> any EventTransport

    let testDescription: String
    /// Whether Foundation on Linux cannot be held to it: it ends the process at an answer without a whole header, and of some hundred requests on
    /// a connection that the server is closing one hangs until the session's own limit of 60 s.
    let isTooMuchForLinux: Bool
    let check: @Sendable (_ make: Make) async throws -> Void

    private init(_ claim: String, isTooMuchForLinux: Bool = false, _ check: @escaping @Sendable (_ make: Make) async throws -> Void) {
        (testDescription, self.isTooMuchForLinux, self.check) = (claim, isTooMuchForLinux, check)
    }

    static let all: [TransportRule] = [
        .init("the body arrives as it is, zero bytes included, with its headers; the answer comes back whole") { make in
            let server = try LoopbackServer { _ in .answer(ok) }
            defer { server.stop() }
            let body = (0..<700_000).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            let answer = try await make().send(request(server.url, body: body)).get()
            #expect(answer.status == 200)
            #expect(answer.body == Array("{}".utf8))
            #expect(answer.headers["content-type"] == "application/json")
            let received = try #require(server.requests.first)
            #expect(received.body == body)
            #expect(received.head.hasPrefix("POST /v1/events HTTP/1.1\r\n"))
            #expect(received.head.contains("\r\nAuthorization: Bearer k"))
            #expect(!received.head.contains("Expect:"))
        },
        .init("the connection is kept") { make in
            let server = try LoopbackServer { _ in .answer(ok) }
            defer { server.stop() }
            let transport = make()
            for _ in 0..<5 { _ = try await transport.send(request(server.url)).get() }
            // One that has been idle for two minutes, as on a starved machine, is not used again.
            #expect(Set(server.requests.map(\.connection)).count <= 2)
        },
        .init("a kept connection that the server has closed does not cost an answer", isTooMuchForLinux: true) { make in
            let server = try LoopbackServer { _ in .answerAndClose(ok) }
            defer { server.stop() }
            let transport = make()
            for _ in 0..<3 { _ = try await transport.send(request(server.url)).get() }
            #expect(server.connections == 3)
        },
        .init("redirects are not followed") { make in
            for status in [301, 307, 308] {
                let server = try LoopbackServer { _ in
                    .answer("HTTP/1.1 \(status) Elsewhere\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n")
                }
                defer { server.stop() }
                #expect(try await make().send(request(server.url)).get().status == status)
                #expect(server.requests.count == 1)
            }
        },
        .init("an answer whose header is cut is no answer (I5)", isTooMuchForLinux: true) { make in
            for end in stride(from: 0, to: header.utf8.count, by: 3) { try await isCut(make, at: end) }
        },
        .init("nor is one whose body is cut (I5)") { make in
            for end in header.utf8.count..<ok.utf8.count { try await isCut(make, at: end) }
        },
        .init("an answer over the limit is no answer (I13)") { make in
            let limit = EventLimits.maximumAnswerBytes
            let server = try LoopbackServer { request in
                let size = limit + (request.head.contains("/over") ? 1 : 0)
                return .answer("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n" + String(repeating: "x", count: size))
            }
            defer { server.stop() }
            let transport = make()
            #expect(try await transport.send(request(server.url)).get().body.count == limit)
            #expect(failure(await transport.send(request(server.url + "/over"))) == .answerTooLarge)
        },
        .init("a server that never answers is given up at the deadline (D6)") { make in
            let server = try LoopbackServer { _ in .silence }
            defer { server.stop() }
            try await endsAtTheDeadline(make, server)
        },
        .init("and so is one that answers byte by byte: the deadline is the whole answer's (R5, R33, D6)") { make in
            let server = try LoopbackServer { _ in .drip("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n") }
            defer { server.stop() }
            try await endsAtTheDeadline(make, server)
        },
        .init("a deadline that has passed, however long ago, is one") { make in
            let server = try LoopbackServer { _ in .silence }
            defer { server.stop() }
            let ended = failure(await make().send(request(server.url, timeout: .seconds(Int64.min))))
            // A busy machine is not connected by then.
            #expect([.timedOut, .cannotConnect].contains(ended))
        },
        .init("closing ends what is under way, and not its deadline, and refuses what follows") { make in
            let arrived = AsyncStream<Void>.makeStream()
            let server = try LoopbackServer { _ in
                arrived.continuation.yield()
                return .silence
            }
            defer { server.stop() }
            let transport = make()
            async let hanging = transport.send(request(server.url))
            for await _ in arrived.stream { break }
            transport.close()
            #expect(failure(await hanging) == .aborted)
            #expect(failure(await transport.send(request(server.url))) == .aborted)
        },
        .init("nobody listens: refused at once") { make in
            #expect(failure(await make().send(request("http://127.0.0.1:1/v1/events"))) == .cannotConnect)
        },
        .init("what is not HTTP is no answer", isTooMuchForLinux: true) { make in
            let server = try LoopbackServer { _ in .answerAndClose("SSH-2.0-OpenSSH_9.2\r\n") }
            defer { server.stop() }
            #expect(failure(await make().send(request(server.url))) == .cut)
        },
    ]

    // MARK: - What the checks share

    private static let header = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
    static let ok = header + "{}"

    private static func isCut(_ make: Make, at end: Int) async throws {
        let server = try LoopbackServer { _ in .answerAndClose(String(decoding: ok.utf8.prefix(end), as: UTF8.self)) }
        defer { server.stop() }
        let result = await make().send(request(server.url))
        #expect(failure(result) == .cut, "cut at \(end) \(result)")
        #expect(server.requests.count == 1, "the request arrived: its fate is unknown")
    }

    /// - Parameter timeout: So long that no test but that of the deadline itself ends by it, however busy the machine is.
    static func request(_ url: String, body: [UInt8] = [1, 2, 3], timeout: Duration = .seconds(600)) -> TransportRequest {
        TransportRequest(
            url: url, headers: [("Authorization", "Bearer k"), ("Content-Type", "application/json")], body: body, timeout: timeout)
    }

    static func failure(_ result: Result<TransportAnswer, TransportFailure>) -> TransportFailure? {
        if case .failure(let failure) = result { failure } else { nil }
    }

    /// Longer deadlines only for a machine so busy that the request did not arrive within the shorter ones.
    private static func endsAtTheDeadline(_ make: Make, _ server: LoopbackServer) async throws {
        var timeout: Duration = .milliseconds(200)
        repeat {
            #expect(failure(await make().send(request(server.url, timeout: timeout))) == .timedOut)
            timeout = timeout * 4
        } while server.requests.isEmpty && timeout < .seconds(60)
        #expect(!server.requests.isEmpty)
    }
}
