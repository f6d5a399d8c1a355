import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

@Suite("The wire, over a real socket", .endsWhenItHangs)
struct EventRoutesTests {
    private static func batch(_ numbers: [UInt64], id: EventID? = nil) -> [UInt8] {
        EventBatch(envelope: .init(batchID: id), events: numbers.map { Sample.event(Sample.id($0)) }).encoded()
    }

    @Test("An envelope is stored, then found again; the receipt passes the client's own acceptance rule (I5)")
    func storedThenDuplicate() async throws {
        try await RunningServer.run { server in
            let batchID = Sample.id(500)
            let first = try await server.post(Self.batch([1, 2], id: batchID))
            #expect(first.status == 200)
            #expect(first["X-Request-Id"]?.isEmpty == false)
            let ids = [Sample.id(1), Sample.id(2)]
            #expect(try first.receipt().verdicts(for: batchID, sent: ids)?.map(\.outcome) == [.stored, .stored])
            let second = try await server.post(Self.batch([1, 2], id: batchID))
            #expect(try second.receipt().verdicts(for: batchID, sent: ids)?.map(\.outcome) == [.duplicate, .duplicate])
        }
    }

    @Test("Bare arrays and newline-delimited JSON are accepted; a bad line costs only itself (I8)")
    func foreignFormsAreAccepted() async throws {
        try await RunningServer.run { server in
            let array = Array("[".utf8) + Sample.event(Sample.id(1)) + Array("]".utf8)
            #expect(try await server.receipt(array).stored == 1)
            let lines = Sample.event(Sample.id(2)) + Array("\r\nnonsense\n\n".utf8) + Sample.event(Sample.id(3))
            let receipt = try await server.receipt(lines, headers: ["Content-Type": "application/x-ndjson; charset=utf-8"])
            #expect(receipt.received == 3)
            #expect(receipt.stored == 2)
            #expect(receipt.results.map(\.outcome) == [.rejected])
            #expect(receipt.batchID == nil)
        }
    }

    @Test("gzip is understood; what is damaged, cut, or would be too large inside is refused without storing")
    func gzipIsUnderstood() async throws {
        let store = ScriptedStore()
        try await RunningServer.run(on: store) { server in
            let body = try Gzip.compress(Self.batch([1]))
            #expect(try await server.receipt(body, headers: ["Content-Encoding": "gzip"]).stored == 1)
            for bad in [Array(body.dropLast(5)), Array(body.dropFirst(3)), Self.batch([2])] {
                #expect(try await server.post(bad, headers: ["Content-Encoding": "gzip"]).problemCode == .invalidEncoding)
            }
            let bomb = try Gzip.compress([UInt8](repeating: 0x20, count: EventLimits.maximumDecompressedBodyBytes + 1), level: 9)
            #expect(try await server.post(bomb, headers: ["Content-Encoding": "gzip"]).problemCode == .bodyTooLarge)
            let full = try Gzip.compress(
                Self.batch([3]) + [UInt8](repeating: 0x20, count: EventLimits.maximumDecompressedBodyBytes - Self.batch([3]).count))
            #expect(try await server.receipt(full, headers: ["Content-Encoding": "gzip"]).stored == 1)
            #expect(try await server.post(body, headers: ["Content-Encoding": "br"]).problemCode == .unsupportedEncoding)
        }
        #expect(store.committedIDs == [Sample.id(1), Sample.id(3)])
    }

    @Test("Whole-request refusals are problem documents with their status and code, and store nothing")
    func refusalsAreProblemDocuments() async throws {
        let store = ScriptedStore()
        try await RunningServer.run(on: store) { server in
            let good = Self.batch([1])
            func code(_ body: [UInt8], _ headers: [String: String]) async throws -> RequestProblem.Code? {
                try await server.post(body, headers: headers).problemCode
            }
            #expect(try await code(good, ["Authorization": "Bearer wrong"]) == .unknownKey)
            #expect(try await code(good, ["Authorization": "Basic \(RunningServer.key)"]) == .unknownKey)
            #expect(try await code(good, ["Content-Type": "text/plain"]) == .unsupportedType)
            #expect(try await code(Array("{".utf8), [:]) == .malformed)
            #expect(try await code(Array(#"{"events":[{"a":1}}"#.utf8), [:]) == .malformed)
            #expect(try await code(Array(#"{"events":[],"events":[]}"#.utf8), [:]) == .malformed)
            #expect(try await code(Array(#"{"batch_id":"x"}"#.utf8), [:]) == .malformed)
            let tooMany = Array("[".utf8) + Array(repeatElement("1,", count: 1_000).joined().utf8) + Array("1]".utf8)
            #expect(try await code(tooMany, [:]) == .tooManyEvents)
            let large = [UInt8](repeating: 0x20, count: EventLimits.maximumBodyBytes + 1)
            #expect(try await code(large, [:]) == .bodyTooLarge)
            #expect(try await RawHTTP.post(port: server.port, path: "/v2/events", body: []).problemCode == .notFound)
            let put = try await server.get("/v1/events", method: "PUT")
            #expect(put.problemCode == .methodNotAllowed)
            #expect(put["Allow"] == "POST, OPTIONS, GET, HEAD")
            #expect(try await server.get("/v1/events/\(Sample.id(1))", method: "PUT").problemCode == .methodNotAllowed)
        }
        #expect(store.committedIDs.isEmpty)
    }

    @Test("A body of exactly the limit is taken; chunked bodies are limited as well")
    func bodyLimitIsExact() async throws {
        try await RunningServer.run { server in
            let batch = Self.batch([1])
            let full = batch + [UInt8](repeating: 0x20, count: EventLimits.maximumBodyBytes - batch.count)
            #expect(try await server.receipt(full).stored == 1)
            let connection = try await RawHTTP(port: server.port)
            let head = RunningServer.headers.merging(["Transfer-Encoding": "chunked"]) { $1 }
            try await connection.send(RawHTTP.request("POST", "/v1/events", headers: head))
            let chunk = [UInt8](repeating: 0x20, count: 65_536)
            for _ in 0..<17 { try await connection.send(Array("10000\r\n".utf8) + chunk + Array("\r\n".utf8)) }
            try await connection.send("0\r\n\r\n")
            #expect(try await connection.answer().problemCode == .bodyTooLarge)
        }
    }

    @Test("The project comes from the key, never from the body (I9)")
    func projectComesFromTheKey() async throws {
        try await RunningServer.run { server in
            let body = Array(#"{"project_id":2,"events":["#.utf8) + Sample.event(Sample.id(1)) + Array("]}".utf8)
            let first = try await server.receipt(body)
            #expect(first.stored == 1)
            let other = ["Authorization": "bearer \(RunningServer.otherKey)"]
            #expect(try await server.receipt(body, headers: other).stored == 1)
            #expect(try await server.receipt(body).duplicates == 1)
        }
    }

    @Test("An unusable optional envelope field is ignored, never refused")
    func unusableEnvelopeFieldsAreIgnored() async throws {
        try await RunningServer.run { server in
            let fields =
                #""batch_id":7,"sent_at":"now","install_id":"{}","created":-1,"acknowledged":1.5,"refused":[1],"else":{"a":[null]}"#
            let body = Array("{\(fields),\"events\":[".utf8) + Sample.event(Sample.id(1)) + Array("]}".utf8)
            let receipt = try await server.receipt(body)
            #expect(receipt.stored == 1)
            #expect(receipt.batchID == nil)
        }
    }

    @Test("S15: times that look like seconds are stored as they are, and the receipt and a dry run say so")
    func secondsAreHintedAt() async throws {
        try await RunningServer.run { server in
            let events = [1_763_679_999, 1_763_679_999_000, 0].enumerated().map { Sample.event(Sample.id(UInt64($0 + 1)), time: $1) }
            let body = EventBatch(envelope: .init(), events: events).encoded()
            let dry = try await RawHTTP.post(port: server.port, path: "/v1/events?dry_run=true", headers: RunningServer.headers, body: body)
            let answer = try await server.post(body)
            #expect(try answer.receipt().stored == 3)
            for message in [dry, answer] {
                #expect(String(decoding: message.body, as: UTF8.self).contains(#"before 1973: 1""#))
            }
            #expect(!String(decoding: try await server.post(Self.batch([4])).body, as: UTF8.self).contains("hint"))
        }
    }

    @Test("S10: a clock that is behind is 503 with its own code")
    func clockBehindHasItsCode() async throws {
        let store = ScriptedStore()
        store.fail { _ in .clockBehind }
        try await RunningServer.run(on: store) { server in
            let answer = try await server.post(Self.batch([1]))
            #expect(answer.problemCode == .clockBehind)
        }
    }

    @Test("An empty batch is answered, and stores nothing")
    func emptyBatchIsAnswered() async throws {
        try await RunningServer.run { server in
            let receipt = try await server.receipt(#"{"events":[]}"#)
            #expect(receipt == Receipt(batchID: nil, received: 0, stored: 0, results: []))
        }
    }

    @Test("Store trouble is 503 with Retry-After, and readiness says so while liveness does not")
    func storeTroubleIs503() async throws {
        let store = ScriptedStore()
        store.fail { _ in .unavailable("test") }
        try await RunningServer.run(on: store) { server in
            let answer = try await server.post(Self.batch([1]))
            #expect(answer.problemCode == .storeUnavailable)
            #expect(answer["Retry-After"] == "1")
            #expect(try await RawHTTP.get(port: server.port, path: "/health/ready").status == 200)
            store.failChecks()
            #expect(try await RawHTTP.get(port: server.port, path: "/health/live").status == 200)
            #expect(try await RawHTTP.get(port: server.port, path: "/health/ready").problemCode == .storeUnavailable)
        }
    }

    @Test("HEAD has the length that GET has, and no body, so that the connection stays in step (RFC 9110 §9.3.2)")
    func headHasNoBody() async throws {
        try await RunningServer.run { server in
            let connection = try await RawHTTP(port: server.port)
            for path in ["/health/live", "/metrics", "/v1/events"] {
                try await connection.send(RawHTTP.request("HEAD", path))
                let answer = try await connection.answer(to: "HEAD")
                #expect(Int(answer["Content-Length"] ?? "") ?? 0 > 0)
            }
            try await connection.send(RawHTTP.request("GET", "/health/live"))
            #expect(try await connection.answer(to: "GET").body == Array(#"{"status":"live"}"#.utf8))
        }
    }

    @Test("Expect: 100-continue is answered before the body (RFC 9110 §10.1.1)")
    func expectationIsAnswered() async throws {
        try await RunningServer.run { server in
            let body = Self.batch([1])
            let head = RunningServer.headers.merging(["Expect": "100-continue", "Content-Length": "\(body.count)"]) { $1 }
            let connection = try await RawHTTP(port: server.port)
            try await connection.send(RawHTTP.request("POST", "/v1/events", headers: head))
            #expect(try await connection.interimAnswer() == 100)
            try await connection.send(body)
            let answer = try await connection.answer()
            #expect(try answer.receipt().stored == 1)
        }
    }

    @Test("The metrics keep honest books: received is the sum of the outcomes (I12)")
    func metricsAddUp() async throws {
        try await RunningServer.run { server in
            _ = try await server.post(Self.batch([1, 2, 2]))
            _ = try await server.post("[{}]")
            _ = try await server.post("nonsense")
            let text = try await server.metrics()
            for line in [
                "hapax_events_received_total 4", #"hapax_events_total{project="shop",outcome="stored"} 2"#,
                #"hapax_events_total{project="shop",outcome="duplicate"} 1"#, #"hapax_events_total{project="shop",outcome="rejected"} 1"#,
                #"hapax_events_rejected_total{project="shop",reason="missing_event_id"} 1"#,
                #"hapax_events_total{project="app",outcome="stored"} 0"#, #"hapax_requests_refused_total{code="malformed"} 1"#,
                #"hapax_request_duration_seconds_count{route="POST /v1/events"} 3"#, "hapax_group_events_sum 2",
                #"hapax_request_duration_seconds_bucket{route="POST /v1/events",le="+Inf"} 3"#,
            ] {
                #expect(text.contains("\n\(line)\n"), "\(line)")
            }
        }
    }

    @Test("S16: a derived id that is there with another content is a duplicate, and counted")
    func derivedIDWithOtherContentIsCounted() async throws {
        try await RunningServer.run { server in
            let id = EventID.derived(name: "order_paid", key: "A-18")
            for amount in [1.0, 1.0, 2.0] {
                let body = EventBatch(envelope: .init(), events: [Sample.event(id, properties: ["amount": amount])]).encoded()
                _ = try await server.receipt(body)
            }
            let metrics = try await server.metrics()
            #expect(metrics.contains("\nhapax_derived_other_content_total 1\n"))
        }
    }

    @Test("What is logged of refused events, and of refused requests, holds nothing that was sent (I14)")
    func logsHoldNothingThatWasSent() async throws {
        let (store, log) = (ScriptedStore(), RecordedLog(level: .trace))
        store.fail { $0.records.isEmpty ? nil : .dataRefused("22P05") }
        try await RunningServer.run(on: store, logger: log.logger) { server in
            let event = Sample.event(
                Sample.id(1), name: "secret_name", distinctID: "secret_user", properties: ["secret_key": "secret_value"])
            for body in [Array("[".utf8) + event + Array("]".utf8), Array(#"[{"event":"secret_name"}]"#.utf8), Array("{secret".utf8)] {
                _ = try await server.post(body)
            }
            _ = try await server.post("[]", headers: ["Authorization": "Bearer secret_key"])
            store.fail { _ in .unavailable("test") }
            _ = try await server.post(Array("[".utf8) + event + Array("]".utf8))
        }
        let text = "\(log.lines)"
        #expect(log.lines.contains { $0.message == "A request was refused" && $0.metadata["problem.code"] == "malformed" })
        let sentence = "the header Authorization: Bearer must carry a known key"
        #expect(log.lines.contains { $0.metadata["problem.code"] == "unknown_key" && $0.metadata["problem.detail"] == "\(sentence)" })
        #expect(log.lines.contains { $0.message == "A group could not be committed" })
        for word in ["secret", RunningServer.key, "\(Sample.id(1))"] { #expect(!text.contains(word), "\(word): \(text)") }
    }

    @Test("A connection is kept and several requests on it are answered in order")
    func connectionIsKept() async throws {
        try await RunningServer.run { server in
            let connection = try await RawHTTP(port: server.port)
            for number: UInt64 in 1...3 {
                try await connection.send(
                    RawHTTP.request("POST", "/v1/events", headers: RunningServer.headers, body: Self.batch([number])))
                #expect(try await connection.answer().receipt().stored == 1)
            }
        }
    }

    @Test("Headers that do not come, first or later, and bodies that drip, are ended by their deadlines with 408 (I13)")
    func slowSendersAreEnded() async throws {
        let whole = RawHTTP.request("GET", "/health/live")
        let half = RawHTTP.request("POST", "/v1/events", headers: RunningServer.headers.merging(["Content-Length": "100"]) { $1 })
        // The deadline holds for every header block of a kept connection, not only for the first.
        for (first, drip) in [(nil, Array(half.prefix(30))), (nil, half + Array("{".utf8)), (whole, Array(half.prefix(10)))] {
            let answer = try await Self.answer(to: drip, behind: first)
            #expect(answer.problemCode == .tooSlow)
            #expect(answer.closesConnection)
            #expect(answer["X-Request-Id"]?.isEmpty == false)
        }
    }

    /// The answer to what never comes to its end, on a server with short deadlines: longer ones if the machine is so busy that it was met by
    /// them before it had sent all of this.
    private static func answer(to drip: [UInt8], behind first: [UInt8]?) async throws -> HTTPMessage {
        for milliseconds in [200, 1_000, 5_000, 25_000] {
            var options = RunningServer.options
            options.limits.header = .milliseconds(milliseconds)
            options.limits.body = .milliseconds(milliseconds)
            let answer: HTTPMessage? = try await RunningServer.run(options: options) { server in
                do {
                    let connection = try await RawHTTP(port: server.port)
                    if let first {
                        try await connection.send(first)
                        guard try await connection.answer(to: "GET").status == 200 else { return nil }
                    }
                    try await connection.send(drip)
                    return try await connection.answer()
                } catch is LoopbackSocket.Failure {
                    return nil
                }
            }
            if let answer { return answer }
        }
        throw AlwaysTooBusy()
    }

    private struct AlwaysTooBusy: Error {}

    @Test("A header block beyond 16 KiB is refused and its connection closed (I13)")
    func largeHeaderIsRefused() async throws {
        try await RunningServer.run { server in
            let headers = RunningServer.headers.merging(["X-Filler": String(repeating: "x", count: 17_000)]) { $1 }
            let answer = try await server.post(Self.batch([1]), headers: headers)
            // Hummingbird's own refusal: the request was never taken apart, so there is no document.
            #expect(answer.status == 400)
            #expect(answer.problemCode == nil)
            #expect(answer.closesConnection)
        }
    }

    @Test("Graceful stop cuts a request that has not arrived whole, at once (I17)")
    func gracefulStopCutsHalfRequests() async throws {
        let half = try await RunningServer.run { server in
            let half = try await RawHTTP(port: server.port)
            try await half.send(
                RawHTTP.request("POST", "/v1/events", headers: RunningServer.headers.merging(["Content-Length": "100"]) { $1 }))
            // A request on another connection is answered behind this one's head.
            _ = try await server.receipt(Self.batch([1]))
            return half
        }
        // The server has ended, minutes before the body's deadline.
        await #expect(throws: (any Error).self) { try await half.answer() }
    }

    @Test("Graceful stop answers what is in flight, after its commit (I17)")
    func gracefulStopFinishesRequestsInFlight() async throws {
        let store = ScriptedStore()
        store.hold()
        let answer = try await RunningServer.run(on: store) { server in
            let answer = Task { try await server.post(Self.batch([1])) }
            await store.untilHeld()
            // Let go when the server takes no new connection any more: the stop has begun, with the commit still held.
            Task {
                while (try? await RawHTTP.get(port: server.port, path: "/health/live", timeout: 1)) != nil {}
                store.release()
            }
            return answer
        }
        #expect(try await answer.value.receipt().stored == 1)
    }
}
