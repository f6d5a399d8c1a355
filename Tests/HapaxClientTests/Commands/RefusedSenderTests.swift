import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("hapax with a key that is refused, and what waits by destination (C26, C27)", .endsWhenItHangs)
struct RefusedSenderTests {
    private static let key = "hapax_w_AhyYsecretsecretsecretsecretsecret12"
    private static let sentence = "this key is mistyped, or a part of one: its check sum does not fit"
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func refuses(_ problem: RequestProblem?) {
        server.change { ($0.failuresLeft, $0.problem) = (problem == nil ? 0 : .max, problem) }
    }

    private func run(_ arguments: String...) async throws -> CommandLine.Output {
        let output = try await hapax.start(arguments).finish()
        #expect(!(output.out + output.error).contains("secret"), "\(arguments)")
        return output
    }

    @Test("track, flush, import and status say why, in the server's words; flush and import exit with 2 until it is over")
    func sentenceIsPrinted() async throws {
        refuses(RequestProblem(.unknownKey, detail: Self.sentence))
        let why = "the server answered 401 (unknown_key): " + Self.sentence
        let track = try await run("track", "one", "--key", Self.key)
        #expect(track.status == 0 && track.error.contains("stored, not delivered yet: " + why))
        let resting = try await run("track", "two", "--key", Self.key, "--json")
        #expect((resting.json["failure"] as? String)?.hasSuffix("401 unknown_key: " + Self.sentence) == true, "without another attempt")
        let flush = try await run("flush", "--key", Self.key, "--json")
        #expect(flush.status == 2 && flush.json["failure"] as? String == why)
        let file = hapax.directory.path("events.ndjson")
        try #"{"event_id":"\#(EventID.derived(name: "a", key: "b"))","event":"e","time":1,"distinct_id":"u"}"#
            .write(toFile: file, atomically: false, encoding: .utf8)
        let imported = try await run("import", file, "--key", Self.key, "--json")
        #expect(imported.status == 2 && imported.json["failure"] as? String == why)
        let status = try await run("status")
        let line = #/destination  http://127.0.0.1:\d+ \(hapax_w_AhyY…\): 401 unknown_key, next try \d\d:\d\d/#
        #expect(status.out.contains(line) && status.out.contains("the server says: " + Self.sentence), "\(status.out)")
        refuses(nil)
        #expect(try await run("flush", "--key", Self.key).status == 0)
        let after = try await run("status", "--json")
        let destination = try #require((after.json["destinations"] as? [[String: Any]])?.first)
        #expect(destination["failure"] is NSNull && destination["next_try"] is NSNull && destination["waiting"] as? Int == 0)
        #expect(destination["server"] as? String == server.url && destination["key"] as? String == "hapax_w_AhyY…")
    }

    @Test("of a running process status knows server, key, failure and next try; what waits in it it lists itself, the oldest first")
    func runningProcessIsSeen() async throws {
        let clock = TestClock()
        clock.advance(by: .milliseconds(Int64(Date().timeIntervalSince1970 * 1_000) - clock.unixMilliseconds))
        let holder = try TestClient(directory: hapax.directory, clock: clock) {
            ($0.server, $0.writeKey) = (EventClient.Configuration.url(server.url), Self.key)
        }
        holder.transport.script { _ in .success(.problem(.unknownKey)) }
        let ids = try await holder.track(0..<3)
        _ = await holder.client.flush()
        let status = try await run("status", "--json")
        let destination = try #require((status.json["destinations"] as? [[String: Any]])?.first)
        #expect(destination["failure"] as? String == "401 unknown_key" && destination["detail"] as? String == "a test")
        let next = try #require(destination["next_try"] as? Int)
        #expect(Date(unixMilliseconds: Int64(next)) == (await holder.client.status().nextAttempt) && destination["waiting"] as? Int == 3)
        #expect(try await run("status").out.contains("held by a running process"))
        let waiting = try await holder.client.waiting(limit: 2)
        #expect(waiting.map(\.id) == Array(ids.prefix(2)) && waiting.map(\.name) == ["event 0", "event 1"])
        #expect(waiting.allSatisfy { !$0.isHeld && String(decoding: $0.json, as: UTF8.self).contains($0.id.description) })
        #expect(try await holder.client.waiting(limit: -1).isEmpty)
        await holder.client.shutdown(within: .zero)
        await #expect(throws: StorageFailure.self) { try await EventClient(nil).waiting() }
    }

    @Test("what another process noted is over once this one's events are accepted")
    func noteIsNotOld() async throws {
        let holder = try hapax.client()
        try await holder.track(0..<1)
        refuses(RequestProblem(.unknownKey, detail: Self.sentence))
        _ = try await hapax.run("track", "one")
        #expect(try await hapax.run("status").out.contains("401 unknown_key"))
        #expect(await holder.client.flush().stored == 1)
        #expect(try await !hapax.run("status").out.contains("unknown_key"))
        await holder.client.shutdown(within: .zero)
    }

    @Test("purge by destination deletes what waits for one server and key; a name that is none, or two, deletes nothing")
    func purgeByDestination() async throws {
        let others = ["hapax_w_BbbBsecretsecretsecretsecretsecret12", Self.key]
        for key in others { #expect(try await run("track", "e", "--key", key, "--no-flush").status == 0) }
        for (name, says) in [("hapax_w_Ccc", "no file"), (server.url, "more than one")] {
            let none = try await run("queue", "purge", "--destination", name, "--yes")
            #expect(none.status == 1 && none.error.contains(says) && none.error.contains("hapax_w_BbbB…"), "\(none.error)")
        }
        let purge = try await run("queue", "purge", "--destination", "hapax_w_AhyY…", "--yes", "--json")
        #expect(purge.status == 0 && purge.json["purged"] as? Int == 1)
        let status = try await run("status", "--json")
        let waiting = (status.json["destinations"] as? [[String: Any]])?.map {
            [$0["key"] as? String, ($0["waiting"] as? Int)?.description]
        }
        #expect(waiting == [["hapax_w_BbbB…", "1"], ["hapax_w_AhyY…", "0"]])
        let flush = try await run("flush", "--key", Self.key)
        #expect(flush.status == 2 && flush.error.contains("another server or key: \(server.url) (hapax_w_BbbB…)"))
    }

    @Test("a list of destinations that cannot be read is said, and nothing else depends on it")
    func unreadableNotesAreSaid() async throws {
        #expect(try await run("track", "e", "--no-flush").status == 0)
        let path = hapax.queue + "/destinations"
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
        let status = try await run("status")
        #expect(status.status == 0 && status.error.contains("cannot be read") && status.out.contains("waiting      1 events"))
        #expect(try await run("flush").status == 0)
    }

    @Test(
        "of a key no more is shown than tells it from others",
        arguments: [("hapax_w_AhyYabcdefghijkl", "hapax_w_AhyY…"), ("demo", "d…"), ("k", "…")])
    func keyBeginning(key: String, shown: String) throws {
        let endpoint = Endpoint(url: "https://a.b/x/v1/events", key: key, batchSize: 1, batchSizeGrows: false, timeout: .seconds(1))
        #expect(endpoint.keyBeginning == shown && endpoint.baseURL == "https://a.b/x")
    }
}
