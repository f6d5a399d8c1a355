import HapaxTestKit
import Foundation
import Logging
import Testing

@testable import HapaxClient

@Suite("What the log tells of events that are not stored, dropped or dead letters (C12, I14)", .endsWhenItHangs)
struct TroubleLogTests {
    private let log = RecordedLog()

    private func client(_ configure: (inout EventClient.Configuration) -> Void = { _ in }) throws -> TestClient {
        try TestClient {
            $0.logger = Logger(label: "test") { _ in log }
            configure(&$0)
        }
    }

    /// Each with its level, in order.
    private var messages: [String] { log.lines.map { String($0.prefix { $0 != "[" }).trimmingCharacters(in: .whitespaces) } }

    enum Trouble: String, CaseIterable, Sendable {
        case refused = "quota_full", removed = "quota_oldest", overLimit = "name_too_long", rejected

        var isOfDeadLetters: Bool { self == .overLimit || self == .rejected }
    }

    @Test("one warning with reason and count when it begins, one notice when it has not happened for a minute", arguments: Trouble.allCases)
    func troubleIsLoggedTwice(trouble: Trouble) async throws {
        let test = try client {
            if !trouble.isOfDeadLetters {
                ($0.queue.quota.maximumEvents, $0.queue.quota.policy) = (1, trouble == .removed ? .dropOldest : .reject)
            }
        }
        test.transport.script { .success($0.receipt { _ in trouble == .rejected ? .rejected : .stored }) }
        try await test.track(0..<1)
        for _ in 0..<2 {
            for _ in 0..<3 { test.client.track(trouble == .overLimit ? String(repeating: "secret", count: 50) : "secret") }
            try await test.client.writer.barrier()
            if trouble == .rejected { _ = await test.client.flush() }
            test.clock.advance(by: .seconds(30))
        }
        let (begins, ends) =
            trouble.isOfDeadLetters
            ? ("warning Events become dead letters", "notice Events no longer become dead letters")
            : ("warning Events are dropped", "notice Events are no longer dropped")
        #expect(messages == [begins] && log.lines[0].contains(trouble.rawValue))
        test.clock.advance(by: .seconds(30))
        _ = await test.client.flush()
        try await test.track(0..<1)
        #expect(messages == [begins, ends])
        #expect(log.lines.allSatisfy { !$0.contains("secret") })
        await test.client.shutdown(within: .zero)
    }

    @Test("commits that fail are told when the first does and when one succeeds; what is refused meanwhile is told as well")
    func failingCommitsAreLogged() async throws {
        let test = try client { $0.queue.mailboxCapacity = 1 }
        try test.refuseCommits(true)
        test.client.track("secret")
        await test.clock.scheduled(1)
        #expect(test.client.track("secret") == nil)
        for _ in 0..<3 { await #expect(throws: TrackError.self) { try await test.client.writer.barrier(retrying: true) } }
        test.clock.advance(by: .seconds(1))
        try test.refuseCommits(false)
        await test.clock.advance(by: .seconds(5)) { await test.client.status().inMemory == 0 }
        try await test.client.writer.barrier()
        #expect(
            messages == [
                "warning Events cannot be stored and wait in memory", "warning Events are dropped", "notice Events are stored again",
            ])
        #expect(log.lines[0].contains("hapax.failure") && log.lines[1].contains("mailbox_full"))
        await test.client.shutdown(within: .zero)
    }
}
