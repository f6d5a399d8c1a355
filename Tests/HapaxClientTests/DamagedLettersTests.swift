import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Dead letters whose bytes changed on the disk, or were never text (I3, I11)", .timeLimit(.minutes(10)), .endsWhenItHangs)
struct DamagedLettersTests {
    private let directory = TemporaryDirectory()
    private var path: String { directory.path + "/queue/queue.sqlite" }

    /// A closed queue with one dead letter, an event that the server has refused.
    private func makeLetter() async throws -> EventID {
        let test = try TestClient(
            directory: directory, transport: ScriptedTransport { batch in .success(batch.receipt { _ in .rejected }) })
        let id = try await test.client.trackDurably("paid", properties: ["amount": 12_345])
        #expect(await test.client.flush().deadLettered == 1)
        await test.client.shutdown(within: .zero)
        return id
    }

    private func change(_ old: Data, to new: Data) throws {
        var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
        let place = try #require(bytes.range(of: old))
        bytes.replaceSubrange(place, with: new)
        try bytes.write(to: URL(fileURLWithPath: path))
    }

    @Test("a letter of which a bit changed is not what the app tracked: it says so, and is never sent (I3)", arguments: [true, false])
    func changedLettersAreNotRetried(isIDChanged: Bool) async throws {
        let id = try await makeLetter()
        if isIDChanged {
            var changed = id.bytes
            changed[15] ^= 1
            try change(Data(id.bytes), to: Data(changed))
        } else {
            try change(Data("12345".utf8), to: Data("92345".utf8))
        }
        let test = try TestClient(directory: directory)
        let letter = try #require(try test.client.deadLetters.list().first)
        #expect(letter.reason == "damaged" && letter.detail == DamagedRows.detail)
        let result = try test.client.deadLetters.retry()
        #expect(result.retried.isEmpty && result.unfit == 1)
        #expect(await test.client.flush().stored == 0)
        #expect(try test.client.deadLetters.count() == 1)
        await test.client.shutdown(within: .zero)
    }

    @Test("a letter that changed in a spool stays damaged where it is taken over (I3)")
    func changedLettersStayDamaged() async throws {
        _ = try await makeLetter()
        try change(Data("12345".utf8), to: Data("92345".utf8))
        let spool = QueueDirectory(path: directory.path + "/main").spool(named: "0198")
        try FileManager.default.createDirectory(atPath: directory.path + "/main/spool", withIntermediateDirectories: true)
        try FileManager.default.moveItem(atPath: directory.path + "/queue", toPath: spool.path)
        let test = try TestClient(directory: directory) { $0.queueDirectory = directory.path + "/main" }
        #expect(await test.client.flush().failure == nil)
        #expect(try test.client.deadLetters.list().map(\.reason) == ["damaged"])
        #expect(try test.client.deadLetters.retry().retried.isEmpty)
        await test.client.shutdown(within: .zero)
    }

    @Test("events that changed one behind the other are dead letters after one look, and the others are sent (I3)")
    func changedEventsHoldUpNoOther() async throws {
        let test = try TestClient(directory: directory)
        try await test.track(0..<120)
        try await test.client.queue.database.write {
            try $0.execute(sql: "UPDATE queue SET check_sum = 1 - check_sum WHERE row IN (10, 51, 52, 92)")
        }
        let report = await test.client.flush()
        #expect(report.stored == 116 && report.deadLettered == 4 && report.failure == nil)
        #expect(await test.client.status().isBalanced)
        await test.client.shutdown(within: .zero)
    }

    @Test("bytes that are not UTF-8 are exported whole: after a purge they are nowhere else (I1)")
    func exportKeepsTheBytes() throws {
        let bytes = Array(#"{"event":"caf"#.utf8) + [0xE9] + Array(#""}"#.utf8)
        let letter = DeadLetter(number: 1, eventID: nil, reason: "invalid_utf8", detail: "", time: 5, event: bytes)
        let line = try #require(try JSONSerialization.jsonObject(with: Data(letter.line)) as? [String: Any])
        #expect(line["text"] as? String == "{\"event\":\"caf\u{FFFD}\"}")
        #expect((line["base64"] as? String).flatMap { Data(base64Encoded: $0) } == Data(bytes))
        let text = DeadLetter(number: 1, eventID: nil, reason: "invalid_json", detail: "", time: 5, event: Array("caf\u{E9}".utf8))
        #expect(String(decoding: text.line, as: UTF8.self).contains(#""text":"café"}"#))
    }
}
