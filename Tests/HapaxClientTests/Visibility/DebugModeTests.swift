import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Debug mode (R35, R59, I14)", .endsWhenItHangs)
struct DebugModeTests {
    private let shown = Locked<[String]>([])

    private func client(_ transport: ScriptedTransport = ScriptedTransport(), debugMode: Bool = true) throws -> TestClient {
        try TestClient(transport: transport) { [shown] configuration in
            configuration.uploads.interval = .seconds(15)
            configuration.debug.isOn = debugMode
            configuration.debug.output = { text in shown.withLock { $0.append(text) } }
        }
    }

    @Test("each stored event is shown as readable JSON, the same that travels, completed by its sequence (R59)")
    func storedEventsAreShown() async throws {
        let test = try client()
        try await test.client.trackDurably("one", properties: ["text": "a \"{b}\", c: [d]", "list": [1, [], ["k": nil]] as PropertyValue])
        await test.transport.requests(1)
        let text = try #require(shown.withLock { $0.first })
        #expect(text.hasPrefix("{\n  \"event_id\": \""))
        #expect(text.contains("\n  \"event\": \"one\",\n"))
        #expect(text.contains("\n    \"list\": [\n      1,\n      [],\n      {\n        \"k\": null\n      }\n    ]"))
        #expect(text.contains(#""text": "a \"{b}\", c: [d]""#))
        let event = try #require(test.transport.batches.first?.scanned.events.first)
        var sent = try #require(try JSONSerialization.jsonObject(with: Data(event.wire)) as? [String: Any])
        #expect(sent.removeValue(forKey: "sequence") as? Int == 1)
        #expect(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? NSDictionary == sent as NSDictionary)
    }

    @Test("events are uploaded one by one, in order, as soon as they are stored (R59)")
    func eventsAreUploadedAlone() async throws {
        let test = try client()
        test.client.track("event 0")
        await test.transport.requests(1)
        for index in 1..<5 { test.client.track("event \(index)") }
        _ = await test.client.flush()
        #expect(test.transport.batches.map(\.sequences) == [[1], [2], [3], [4], [5]])
    }

    @Test("a network that hangs holds up neither tracking nor storing nor showing (R15, R59)")
    func hangingNetworkHoldsUpNothing() async throws {
        let test = try client()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        test.client.track("first")
        await test.transport.requests(1)
        try await test.client.trackDurably("second")
        #expect(shown.withLock { $0.count } == 2)
        _ = await test.client.shutdown(within: .zero)
    }

    @Test("an event that is refused is shown with its reason; one that is not stored is not shown (R59)")
    func refusalsAreShown() async throws {
        let test = try client()
        try test.refuseCommits(true)
        await #expect(throws: TrackError.self) { try await test.client.trackDurably(String(repeating: "n", count: 201)) }
        #expect(shown.withLock { $0 } == [])
        try test.refuseCommits(false)
        try await test.client.writer.barrier(retrying: true)
        #expect(shown.withLock { $0 }.map { $0.hasPrefix("dead letter: name_too_long\n{") } == [true])
    }

    @Test("entering the background waits for each upload (R35)")
    func enteringBackgroundWaits() async throws {
        let test = try client()
        test.client.attach(ScriptedApplication())
        test.client.handle(.didBecomeActive)
        let client = test.client
        try await blocking { client.handle(.didEnterBackground) }
        #expect(client.file.counters.waiting == 0 && client.file.counters.stored == 2)
    }

    @Test("unless told otherwise it shows them on standard error, and nothing else goes there (R59)")
    func standardErrorIsTheDefault() async throws {
        let directory = TemporaryDirectory()
        let worker = try ChildProcess(
            "/bin/sh",
            [
                "-c", #"exec "$0" "$@" 2>&1 >/dev/null"#, try PackageLayout.executable("hapax-test-worker"), "track", "--debug",
                "--durably",
                "--count", "2", "--server", "http://127.0.0.1:1", "--key", "k", "--queue", directory.path + "/queue",
            ])
        let lines = await worker.remainingLines()
        #expect(await worker.waitUntilExit() == .exited(0))
        #expect(lines.first == "{" && lines.last == "}")
        #expect(lines.count { $0 == #"  "event": "worker","# } == 2)
    }

    @Test("it is off unless switched on: nothing is shown, and batches are batches (I14)")
    func offByDefault() async throws {
        #expect(!EventClient.Configuration(server: "http://host", writeKey: "k", queueDirectory: "q").debug.isOn)
        let test = try client(debugMode: false)
        try await test.track(0..<100)
        await test.transport.requests(2)
        #expect(shown.withLock { $0 } == [])
        #expect(test.transport.batches.map(\.ids.count) == [50, 50])
    }
}
