import Foundation
import TestSupport
import Testing

@Suite(.endsWhenItHangs)
struct RawHTTPTests {
    /// Answers one connection with fixed bytes and ends it; hands back what was read first.
    private func answering(_ answer: String, body: @Sendable (Int) async throws -> Void) async throws {
        let listener = try LoopbackSocket.listening()
        let port = listener.port
        async let served: Void = blocking {
            let connection = try listener.accepted()
            var reader = HTTPReader(connection)
            _ = try reader.request()
            try connection.write(Array(answer.utf8))
            connection.finishWriting()
        }
        try await body(port)
        try await served
    }

    @Test func contentOfAStatedLengthIsRead() async throws {
        try await answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b\r\n\r\nhello") { port in
            let answer = try await RawHTTP.post(port: port, body: [1, 2, 3])
            #expect(answer.status == 200)
            #expect(answer.body == Array("hello".utf8))
            #expect(answer["x-a"] == "b")
        }
    }

    @Test func chunksAreJoinedAndTrailersSteppedOver() async throws {
        let wire = "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\n"
        try await answering("HTTP/1.1 100 Continue\r\n\r\n" + wire) { port in
            let answer = try await RawHTTP.post(port: port, body: [])
            #expect(answer.status == 503)
            #expect(answer.body == Array("abc0123456789".utf8))
            #expect(answer.bytes == Array(wire.utf8))
        }
    }

    @Test func contentWithoutLengthEndsWithTheConnection() async throws {
        try await answering("HTTP/1.1 200 OK\r\n\r\nrest") { port in
            let answer = try await RawHTTP.post(port: port, body: [])
            #expect(answer.body == Array("rest".utf8))
        }
    }

    @Test func cutAnswerIsNotAnAnswer() async throws {
        try await answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell") { port in
            await #expect(throws: HTTPReader.Failure.cut(received: 42)) { try await RawHTTP.post(port: port, body: []) }
        }
    }

    @Test func silenceEndsInATimeout() async throws {
        let listener = try LoopbackSocket.listening()
        await #expect(throws: LoopbackSocket.Failure.timedOut) {
            try await RawHTTP.get(port: listener.port, path: "/", timeout: 0.05)
        }
    }

    @Test func partsOfARequestCanBeSentOneByOne() async throws {
        try await answering("HTTP/1.1 204 No Content\r\n\r\n") { port in
            let connection = try await RawHTTP(port: port)
            let bytes = RawHTTP.request("POST", "/", headers: ["Content-Length": "2"], body: [])
            for byte in bytes { try await connection.send([byte]) }
            try await connection.send("ab")
            let answer = try await connection.answer()
            #expect(answer.status == 204)
        }
    }
}
