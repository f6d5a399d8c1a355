import Foundation
import HapaxModel
import HapaxTestKit
import Logging
import Testing

@testable import HapaxClient

@Suite("What the log says of a server that refuses for good (C26, I14)", .endsWhenItHangs)
struct RefusalLogTests {
    private let log = RecordedLog()

    private func client() throws -> TestClient {
        try TestClient {
            $0.writeKey = "hapax_w_AhyYsecretsecretsecretsecretsecret12"
            $0.logger = Logger(label: "test") { _ in log }
        }
    }

    private func lines(_ level: String) -> [String] { log.lines.filter { $0.hasPrefix(level + " ") } }

    @Test(
        "one error at the first refusal, with the server's sentence and the key's beginning; then one an hour, and a notice when it is over"
    )
    func refusalIsSaidOnce() async throws {
        let test = try client()
        test.transport.script { _ in .success(.problem(.unknownKey)) }
        try await test.track(0..<1)
        for _ in 0..<12 {
            #expect(await test.client.flush().failure == .status(401, code: "unknown_key"))
            test.clock.advance(by: .seconds(290))
        }
        let first = try #require(lines("error").first)
        #expect(lines("error").count == 1 && ["unknown_key", "a test", "hapax_w_AhyY…", "http://127.0.0.1:1"].allSatisfy(first.contains))
        #expect(await test.client.status().failureDetail == "a test")
        test.clock.advance(by: .seconds(200))
        _ = await test.client.flush()
        #expect(lines("error").count == 2 && lines("notice").isEmpty)
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 1)
        #expect(lines("notice").count == 1)
        #expect(await test.client.status().failureDetail == nil)
        test.transport.script { _ in .success(.problem(.unknownKey)) }
        try await test.track(0..<1)
        _ = await test.client.flush()
        #expect(lines("error").count == 3, "another time")
        #expect(log.lines.allSatisfy { !$0.contains("secret") })
        await test.client.shutdown(within: .zero)
    }

    @Test("trouble that passes by itself is no error", arguments: [408, 429, 500, 503])
    func passingTroubleIsNoError(status: Int) async throws {
        let test = try client()
        test.transport.script { _ in .success(TransportAnswer(status: status)) }
        try await test.track(0..<1)
        _ = await test.client.flush()
        #expect(lines("error").isEmpty && lines("info").count == 1)
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "of an answer that is not our server's nothing is logged but the status; of our own the sentence, without control characters, cut, without the key"
    )
    func onlyOurSentenceIsLogged() async throws {
        let portal = TransportAnswer(status: 403, headers: ["content-type": "text/html"], body: Array(#"{"detail":"portal"}"#.utf8))
        var disguised = portal
        disguised.headers["content-type"] = RequestProblem.contentType
        let long = "\u{1B}[2J\n\u{202E}hapax_w_AhyYsecretsecretsecretsecretsecret12 " + String(repeating: "x", count: 1_000)
        let ours = TransportAnswer(
            status: 403, headers: ["content-type": RequestProblem.contentType],
            body: RequestProblem(.wrongKeyKind, detail: long).encoded(requestID: "1"))
        for answer in [portal, disguised, ours] {
            let test = try client()
            test.transport.script { _ in .success(answer) }
            try await test.track(0..<1)
            _ = await test.client.flush()
            await test.client.shutdown(within: .zero)
        }
        let errors = lines("error")
        #expect(errors.count == 3 && errors.dropLast().allSatisfy { !$0.contains("portal") && !$0.contains("hapax.detail") })
        #expect(errors.allSatisfy { $0.contains("403") && !$0.contains("secret") && $0.count < 800 })
        #expect(!errors[2].unicodeScalars.contains { $0.value < 0x20 || $0.value == 0x202E } && errors[2].contains("xxx"))
    }
}
