import Foundation
import HapaxModel
import TestSupport
import Testing

/// The real command and the real server, with a proxy between that unpacks bodies, and either leaves their header or takes it away without unpacking.
@Suite("Behind a proxy that spoils compressed bodies (C3, C4)", .endsWhenItHangs)
struct UnpackingProxyTests {
    enum Fault: CaseIterable, Sendable {
        case unpacksAndLeavesTheHeader, stripsTheHeader, refusesAnEvent
    }

    /// Returns its port. Each connection has a thread of its own, which ends with it.
    private static func proxy(to server: Int, _ fault: Fault, _ listener: LoopbackSocket) {
        Thread.detachNewThread {
            while let client = try? listener.accepted() {
                Thread.detachNewThread {
                    var reader = HTTPReader(client)
                    while let message = try? reader.request() {
                        guard let answer = try? forward(message, to: server, fault), (try? client.write(answer)) != nil else { break }
                    }
                    client.shutDown()
                }
            }
        }
    }

    private static func forward(_ message: HTTPMessage, to server: Int, _ fault: Fault) throws -> [UInt8] {
        let isCompressed = message["Content-Encoding"] == "gzip"
        let plain = isCompressed ? try Gzip.decompress(message.body, limit: EventLimits.maximumDecompressedBodyBytes) : message.body
        if fault == .refusesAnEvent, String(decoding: plain, as: UTF8.self).contains("DROP TABLE") {
            return Array("HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>".utf8)
        }
        var headers = ["Authorization": message["Authorization"] ?? "", "Content-Type": "application/json"]
        if isCompressed, fault != .stripsTheHeader { headers["Content-Encoding"] = "gzip" }
        let body = fault == .unpacksAndLeavesTheHeader ? plain : message.body
        let upstream = try LoopbackSocket.connected(port: server)
        defer { upstream.shutDown() }
        try upstream.write(RawHTTP.request("POST", "/v1/events", headers: headers, body: body))
        var reader = HTTPReader(upstream)
        return try reader.answer().bytes
    }

    @Test("every event is stored, none is a dead letter; what a firewall refuses waits alone", arguments: Fault.allCases)
    func everyEventIsStored(fault: Fault) async throws {
        let store = try await PipelineStore(.sqlite)
        let server = try await ServerUnderTest.start(store, readKey: "read-key-of-demo")
        let listener = try LoopbackSocket.listening()
        defer { listener.shutDown() }
        Self.proxy(to: server.port, fault, listener)
        let directory = TemporaryDirectory()
        func run(_ arguments: String...) async throws -> (exit: ChildProcess.Exit, text: String) {
            let child = try ChildProcess(
                "hapax", arguments,
                environment: [
                    "HAPAX_SERVER": "http://127.0.0.1:\(listener.port)", "HAPAX_KEY": ServerUnderTest.key,
                    "HAPAX_QUEUE": directory.path("queue"),
                ])
            let lines = await child.remainingLines()
            let exit = await child.waitUntilExit()
            return (exit, (lines + [await child.remainingErrors()]).joined(separator: "\n"))
        }
        let lines = (0..<200).map { number in
            let fill = number == 17 ? "DROP TABLE" : String(repeating: "x", count: number == 3 ? 5 : 300)
            return
                #"{"event_id":"\#(EventID.derived(name: "line", key: "\(number)"))","event":"e","time":\#(number),"distinct_id":"u","properties":{"fill":"\#(fill)"}}"#
        }
        try (lines.joined(separator: "\n") + "\n").write(toFile: directory.path("events.ndjson"), atomically: false, encoding: .utf8)
        // A small event passes plain in any case: it "proves" nothing.
        #expect(try await run("track", "small").exit == .exited(0))
        let left = fault == .refusesAnEvent ? 1 : 0
        let imported = try await run("import", directory.path("events.ndjson"))
        #expect(imported.exit == .exited(left == 0 ? 0 : 2), "\(imported.text)")
        let counters = try await server.counters()
        #expect(
            counters.filter { $0.key.hasPrefix("hapax_events_total{") && $0.key.contains("stored") }.values.reduce(0, +) == 201 - left,
            "\(counters)")
        let letters = try await run("dead-letters", "list")
        #expect(letters.exit == .exited(0) && letters.text.isEmpty, "\(letters.text)")
        _ = await server.stop()
    }
}
