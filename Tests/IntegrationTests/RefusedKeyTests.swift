import Foundation
import HapaxModel
import TestSupport
import Testing

/// The real command and the real server.
@Suite("hapax with a key that the server refuses (C26)", .endsWhenItHangs)
struct RefusedKeyTests {
    @Test(
        "a mistyped key, one that is unknown and one of another kind: the server's sentence is printed, and with the right key nothing is lost"
    )
    func serverSaysWhy() async throws {
        let store = try await PipelineStore(.sqlite)
        let server = try await ServerUnderTest.start(store, readKey: "read-key-of-demo")
        let queue = TemporaryDirectory()
        func run(_ key: String, _ arguments: String...) async throws -> (exit: ChildProcess.Exit, text: String) {
            let child = try ChildProcess(
                "hapax", arguments,
                environment: ["HAPAX_SERVER": "http://127.0.0.1:\(server.port)", "HAPAX_KEY": key, "HAPAX_QUEUE": queue.path + "/queue"])
            let lines = await child.remainingLines()
            let exit = await child.waitUntilExit()
            return (exit, (lines + [await child.remainingErrors()]).joined(separator: "\n"))
        }
        let cases = [
            ("hapax_w_AhyYabcdefghijklmnopqrstuvwxyz123456", "unknown_key", "its check sum does not fit"),
            ("nobody-knows-it", "unknown_key", "must carry a known key"),
            ("read-key-of-demo", "wrong_key_kind", "are sent with a write key"),
        ]
        for (key, code, sentence) in cases {
            let track = try await run(key, "track", "order_paid")
            #expect(track.exit == .exited(0) && track.text.contains("(\(code)): ") && track.text.contains(sentence), "\(track.text)")
            let flush = try await run(key, "flush")
            #expect(flush.exit == .exited(2) && flush.text.contains("(\(code)): ") && flush.text.contains(sentence), "\(flush.text)")
            let status = try await run(key, "status")
            #expect(status.text.contains(" \(code), next try ") && !(track.text + flush.text + status.text).contains(key))
        }
        let replaced = cases.map { "http://127.0.0.1:\(server.port) \($0.0)" }
        let right = try await run(
            ServerUnderTest.key, "flush", "--replaces", replaced[0], "--replaces", replaced[1], "--replaces", replaced[2])
        #expect(right.exit == .exited(0) && right.text.contains("3 stored"), "\(right.text)")
        _ = await server.stop()
    }
}
