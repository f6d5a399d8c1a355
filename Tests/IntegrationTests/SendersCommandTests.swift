import TestSupport
import Testing

@Suite("hapax senders, and events by another vendor's id", .endsWhenItHangs)
struct SendersCommandTests {
    @Test("Who sent without numbers is a line each, and its event is found by its own text, another one is not")
    func sendersAreListed() async throws {
        let readKey = "read-key-of-demo"
        let server = try await ServerUnderTest.start(try await PipelineStore(.sqlite), readKey: readKey)
        func hapax(_ arguments: String...) async throws -> (status: ChildProcess.Exit, text: String) {
            let process = try ChildProcess(
                "hapax", arguments, environment: ["HAPAX_SERVER": "http://127.0.0.1:\(server.port)", "HAPAX_READ_KEY": readKey])
            let text = await process.remainingLines().joined(separator: "\n")
            return (await process.waitUntilExit(), text)
        }
        let body = #"{"writeKey":"\#(ServerUnderTest.key)","batch":[{"event":"e","userId":"u","messageId":"order-17"}]}"#
        let sent = try await RawHTTP.post(
            port: server.port, path: "/v1/batch", headers: ["User-Agent": "shop-service/3.1 (linux)"], body: Array(body.utf8))
        #expect(sent.status == 200)
        var listed = try await hapax("senders")
        // Counts are written every two seconds.
        let end = ContinuousClock.now + .seconds(120)
        while !listed.text.contains("shop-service"), .now < end { listed = try await hapax("senders") }
        let cells = listed.text.split(separator: "\n").last?.split(separator: " ").map(String.init) ?? []
        #expect(
            listed.status == .exited(0) && cells.prefix(3) == ["shop-service", "3.1", "segment"]
                && cells.suffix(7) == ["1", "1"] + [String](repeating: "0", count: 5))
        #expect(try await hapax("senders", "--json").text.hasPrefix(#"{"senders":[{"via":"segment""#))
        #expect(try await hapax("senders", "--from", "yesterday").status == .exited(1))
        let found = try await hapax("events", "order-17")
        #expect(found.status == .exited(0) && found.text.contains("stored"))
        #expect(try await hapax("events", "order-18").status == .exited(1))
        await server.stop()
    }
}
