import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// What a sender on the network may try. Whatever it is: the documented answer, and the next good request works.
@Suite("Hostile requests, over a real socket (I9, I13, I16)", .endsWhenItHangs)
struct HostileRequestTests {
    private static let batch = EventBatch(envelope: .init(), events: [Sample.event(Sample.id(1))]).encoded()

    /// The head of a good request but for its framing.
    private static func post(_ fields: [String], lineEnd: String = "\r\n") -> String {
        let lines = ["POST /v1/events HTTP/1.1", "Host: h", "Authorization: Bearer \(RunningServer.key)", "Content-Type: application/json"]
        return (lines + fields).joined(separator: lineEnd) + lineEnd + lineEnd
    }

    private static func works(_ server: RunningServer) async throws {
        #expect(try await server.receipt(batch).received == 1)
    }

    @Test(
        "What is no HTTP, or framed in two ways, is answered 400 without a document, and its connection closed",
        arguments: [
            post(["Content-Length: 4", "Transfer-Encoding: chunked"]) + "0\r\n\r\n",
            post(["Content-Length: 4", "Content-Length: 5"]) + "[]  ",
            post(["Content-Length: 4, 5"]) + "[]  ", post(["Content-Length: -1"]), post(["Content-Length: +2"]) + "[]",
            post(["Content-Length: 99999999999999999999999"]), post(["Content-Length: 0x10"]), post(["Content-Length: "]),
            post(["Transfer-Encoding: chunked"]) + "zz\r\n[]\r\n0\r\n\r\n", post(["Transfer-Encoding: chunked"]) + "-2\r\n[]\r\n0\r\n\r\n",
            post(["Transfer-Encoding: chunked"]) + "fffffffffffffffff\r\n", post(["Transfer-Encoding: chunked"]) + "2\r\n[]x\r\n0\r\n\r\n",
            post(["X: a\u{0}b"]), post(["X a: b"]), post([": b"]),
            post((0...100).map { "X-\($0): y" }), post(["X: " + String(repeating: "y", count: 17_000)]),
            "POST /" + String(repeating: "a", count: 17_000) + " HTTP/1.1\r\n\r\n", "GET\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{FC}\u{3}\u{3}hello\r\n\r\n",
        ])
    func unreadableRequestIsRefused(text: String) async throws {
        let store = ScriptedStore()
        try await RunningServer.run(on: store) { server in
            let connection = try await RawHTTP(port: server.port)
            try await connection.send(text)
            let answer = try await connection.answer()
            #expect(answer.status == 400, "\(text.prefix(200))")
            #expect(answer.closesConnection)
            #expect(store.committedIDs.isEmpty)
            try await Self.works(server)
        }
    }

    @Test(
        "A line that ends with LF alone, or is folded, never hides a second request or another key",
        arguments: [
            post(["Content-Length: \(batch.count)"], lineEnd: "\n"), post(["X: a", " folded: b", "Content-Length: \(batch.count)"]),
        ])
    func looseLinesAreReadOrRefused(head: String) async throws {
        try await RunningServer.run { server in
            let connection = try await RawHTTP(port: server.port)
            try await connection.send(Array(head.utf8) + Self.batch)
            let answer = try await connection.answer()
            #expect(answer.status == 400 || (answer.status == 200 && (try? answer.receipt().stored) == 1))
            try await Self.works(server)
        }
    }

    @Test("A sender that reads last learns why: the refusal comes before its body has, and the body is read all the same")
    func senderThatReadsLastLearnsWhy() async throws {
        try await RunningServer.run { server in
            let body = [UInt8](repeating: 0x20, count: 9 * 1024 * 1024)
            for (fields, code) in [
                ([:], .bodyTooLarge), (["Authorization": "Bearer wrong"], .unknownKey), (["Content-Type": "text/plain"], .unsupportedType),
                (["Content-Encoding": "br"], .unsupportedEncoding), (["Connection": "close"], .bodyTooLarge),
            ] as [([String: String], RequestProblem.Code)] {
                let answer = try await server.post(body, headers: fields)
                #expect(answer.problemCode == code && answer.closesConnection)
            }
            let chunked = try await RawHTTP(port: server.port)
            try await chunked.send(
                RawHTTP.request("POST", "/v1/events", headers: RunningServer.headers.merging(["Transfer-Encoding": "chunked"]) { $1 }))
            let chunk = Array("100000\r\n".utf8) + [UInt8](repeating: 0x20, count: 1 << 20) + Array("\r\n".utf8)
            for _ in 0..<9 { try await chunked.send(chunk) }
            try await chunked.send("0\r\n\r\n")
            #expect(try await chunked.answer().problemCode == .bodyTooLarge)
            try await Self.works(server)
        }
    }

    @Test("A body in parts of a byte is refused once it has cost something, with any key; larger parts and small bodies pass (S10)")
    func crumbsAreRefused() async throws {
        try await RunningServer.run { server in
            func send(_ bytes: Int, by part: Int, key: String = RunningServer.key) async throws -> HTTPMessage {
                let connection = try await RawHTTP(port: server.port)
                let chunk = "\(String(part, radix: 16))\r\n\(String(repeating: " ", count: part))\r\n"
                let body = String(repeating: chunk, count: bytes / part) + "\(String(Self.batch.count, radix: 16))\r\n"
                let head = RawHTTP.request(
                    "POST", "/v1/events",
                    headers: RunningServer.headers.merging(["Transfer-Encoding": "chunked", "Authorization": "Bearer \(key)"]) { $1 })
                // Whoever is refused in the midst may find the connection closed.
                try? await connection.send(head + Array(body.utf8) + Self.batch + Array("\r\n0\r\n\r\n".utf8))
                return try await connection.answer()
            }
            for (bytes, part) in [(8_000, 1), (100_000, 100), (900_000, 4_000)] {
                #expect(try await send(bytes, by: part).receipt().received == 1, "\(bytes) by \(part)")
            }
            for (bytes, part) in [(17_000, 1), (100_000, 50)] {
                let answer = try await send(bytes, by: part)
                #expect(answer.problemCode == .tooSlow && answer.closesConnection, "\(bytes) by \(part)")
            }
            // Refused for its key; the rest is not read to the end.
            #expect(try await send(17_000, by: 1, key: "wrong").problemCode != nil)
            try await Self.works(server)
        }
    }

    @Test("A body that announces a mebibyte and sends a byte takes a byte: a thousand of them keep nobody out")
    func announcedBytesAreNotCharged() async throws {
        var options = RunningServer.options
        options.limits.arrivingBytes = 64 * 1024
        try await RunningServer.run(options: options) { server in
            var slow: [RawHTTP] = []
            for _ in 0..<200 {
                let connection = try await RawHTTP(port: server.port)
                try await connection.send(Self.post(["Content-Length: 1048576"]) + " ")
                slow.append(connection)
            }
            try await Self.works(server)
            withExtendedLifetime(slow) {}
        }
    }

    @Test("When bodies that stall fill the room, the slowest is cut with 408 and whoever sends gets in")
    func stalledBodiesGiveWay() async throws {
        var options = RunningServer.options
        options.limits.arrivingBytes = 1 << 20
        // Only for want of room, not because it stalls.
        options.limits.stall = .seconds(3_600)
        options.limits.body = .seconds(3_600)
        try await RunningServer.run(options: options) { server in
            let large = [UInt8](repeating: 0x20, count: 900_000) + Self.batch
            var code: RequestProblem.Code?
            repeat {
                let stalled = try await RawHTTP(port: server.port)
                try await stalled.send(Array(Self.post(["Content-Length: 1048576"]).utf8) + [UInt8](repeating: 0x20, count: 1_000_000))
                let isAnswered = Locked(false)
                let refusal = Task {
                    defer { isAnswered.withLock { $0 = true } }
                    return try await stalled.answer()
                }
                // The first of these can be the slower one itself, as long as the stalled body is young.
                repeat { _ = try await server.post(large) } while !isAnswered.withLock { $0 }
                code = try await refusal.value.problemCode
                // Where it was still coming it may be the one that finds no room; then it has not stalled.
            } while code == .overloaded
            #expect(code == .tooSlow)
            #expect(try await server.post(large).receipt().received == 1)
        }
    }

    @Test("At the limit of connections the longest idle one is closed for a new one; nobody waits")
    func longestIdleIsShed() async throws {
        var options = RunningServer.options
        options.limits.connections = 8
        try await RunningServer.run(options: options) { server in
            var kept: [RawHTTP] = []
            for _ in 0..<8 {
                let connection = try await RawHTTP(port: server.port)
                try await connection.send(RawHTTP.request("GET", "/health/live"))
                #expect(try await connection.answer(to: "GET").status == 200)
                kept.append(connection)
            }
            try await Self.works(server)
            await #expect(throws: (any Error).self) { try await kept[0].answer(to: "GET") }
            try await kept[7].send(RawHTTP.request("GET", "/health/live"))
            #expect(try await kept[7].answer(to: "GET").status == 200)
        }
    }

    @Test("A sender that never reads is closed by its deadline, and does not hold up the stop (I17)")
    func senderThatNeverReadsIsClosed() async throws {
        var options = RunningServer.options
        options.limits.answer = .milliseconds(200)
        try await RunningServer.run(options: options) { server in
            let connection = try await RawHTTP(port: server.port)
            // Pipelined until the system takes no more, without reading one answer.
            let request = RawHTTP.request("GET", "/metrics", headers: ["Authorization": "Bearer \(RunningServer.adminKey)"])
            let many = Array(repeatElement(request, count: 200).joined())
            await #expect(throws: (any Error).self) { while true { try await connection.send(many) } }
            try await Self.works(server)
        }
    }

    @Test("Pipelined requests are answered in order; those behind a refused one are not looked at")
    func pipelinedRequestsAreAnsweredInOrder() async throws {
        try await RunningServer.run { server in
            let good = Array(Self.post(["Content-Length: \(Self.batch.count)"]).utf8) + Self.batch
            let connection = try await RawHTTP(port: server.port)
            try await connection.send(Array(repeatElement(good, count: 50).joined()))
            for index in 0..<50 { #expect(try await connection.answer().receipt().stored == (index == 0 ? 1 : 0)) }
            let refused = try await RawHTTP(port: server.port)
            let large = Array(Self.post(["Content-Length: 2000000"]).utf8) + [UInt8](repeating: 0x20, count: 2_000_000)
            try await refused.send(large + good)
            #expect(try await refused.answer().problemCode == .bodyTooLarge)
            await #expect(throws: (any Error).self) { try await refused.answer() }
        }
    }

    @Test(
        "Whoever asks for the connection's end gets it, in any spelling, and so does who sends no HTTP behind a request; a flood of them is closed"
    )
    func endIsGiven() async throws {
        try await RunningServer.run { server in
            let head = "GET /health/live HTTP/1.1\r\nHost: h\r\n"
            for text in [
                head + "Connection: CLOSE\r\n\r\n", head + "Connection: keep-alive, close\r\n\r\n",
                head + "Connection: keep-alive\r\nConnection: close\r\n\r\n", head + "\r\nGARBAGE\r\n\r\n",
            ] {
                let connection = try await RawHTTP(port: server.port)
                try await connection.send(text)
                #expect(try await connection.answer(to: "GET").status == 200)
                // Nothing more but, where there was garbage, its refusal: then the end, minutes before any deadline.
                while let answer = try? await connection.answer(to: "GET") { #expect(answer.status == 400) }
            }
            let flood = try await RawHTTP(port: server.port)
            await #expect(throws: (any Error).self) {
                while true { try await flood.send(String(repeating: "GET /n HTTP/1.1\r\nHost: h\r\n\r\n", count: 2_000)) }
            }
            try await Self.works(server)
        }
    }

    @Test("Resets and ends in mid-body store nothing and cost nobody else")
    func resetsInMidBodyStoreNothing() async throws {
        let store = ScriptedStore()
        try await RunningServer.run(on: store) { server in
            for resets in [true, false] {
                for _ in 0..<20 {
                    let connection = try await RawHTTP(port: server.port)
                    try await connection.send(Array(Self.post(["Content-Length: \(Self.batch.count)"]).utf8) + Self.batch.dropLast())
                    if resets { connection.resetOnClose() }
                    connection.close()
                }
            }
            #expect(store.committedIDs.isEmpty)
            try await Self.works(server)
        }
    }

    @Test("gzip: members behind members are one body, padding is nothing, other bytes behind it and bombs are refused")
    func gzipIsBounded() async throws {
        try await RunningServer.run { server in
            let headers = ["Content-Encoding": "gzip"]
            func code(_ body: [UInt8]) async throws -> RequestProblem.Code? { try await server.post(body, headers: headers).problemCode }
            let half = Self.batch.count / 2
            let members = try Gzip.compress(Array(Self.batch[..<half])) + Gzip.compress(Array(Self.batch[half...]))
            #expect(try await server.receipt(members, headers: headers).stored == 1)
            #expect(try await server.receipt(members + [0, 0, 0], headers: headers).duplicates == 1)
            #expect(try await code(members + [1, 2, 3]) == .invalidEncoding)
            #expect(try await code(Array(members.dropLast())) == .invalidEncoding)
            let mebibyte = try Gzip.compress([UInt8](repeating: 0x20, count: 1 << 20), level: 9)
            #expect(try await code(Array(repeatElement(mebibyte, count: 9).joined())) == .bodyTooLarge)
            #expect(try await code(try Gzip.compress(Gzip.compress(Self.batch))) == .malformed)
            try await Self.works(server)
        }
    }

    @Test("2 KB of commas are charged for what they unfold to")
    func unfoldedEventsAreCharged() throws {
        let body = Array(("[" + String(repeating: "1,", count: 999) + "1]").utf8)
        #expect(try IngestRequest(json: body[...], projectID: 1).bytes > 500_000)
    }

    @Test("An envelope without events is charged for what its install says (I13)")
    func reportsAreCharged() throws {
        let gone = (0..<1_000).map { EventBatch.Envelope.Removed($0 * 2...$0 * 2, reason: String(repeating: "x", count: 200)) }
        let request = try Sample.request([], envelope: .init(installID: Sample.id(9), reportVersion: 1, removed: gone))
        // The reasons are cut (S11), and the book is read for it.
        #expect(request.bytes > 70_000)
    }

    @Test("A key of the wrong kind is 403: the admin key does not write, a write key sees no metrics; no key sees nothing (I9)")
    func keysAreOfAKind() async throws {
        try await RunningServer.run { server in
            let admin = ["Authorization": "Bearer \(RunningServer.adminKey)"]
            #expect(try await server.post(Self.batch, headers: admin).problemCode == .wrongKeyKind)
            let writer = ["Authorization": "Bearer \(RunningServer.key)"]
            #expect(try await RawHTTP.get(port: server.port, path: "/metrics", headers: writer).problemCode == .wrongKeyKind)
            let nobody = try await RawHTTP.get(port: server.port, path: "/metrics")
            #expect(nobody.problemCode == .unknownKey && nobody["WWW-Authenticate"] == "Bearer")
        }
    }
}
