import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// Random lives of a queue inside one process: what commands cannot reach, as calls that cross each other, operations of the disk that fail
/// in the midst of a commit, and files that change under an open client. Then the books.
///
/// Every run lives the first few; `HAPAX_EMBEDDED_HISTORIES=500` lives the first so many, `HAPAX_HISTORY_SEED=n` only the one of that seed;
/// with both, that many from that seed on. A seed says what is done; which task is first is up to the machine.
@Suite("Random histories of an embedded client", .serialized, .endsWhenItHangs)
struct EmbeddedHistoryTests {
    private static let seeds: [UInt64] = {
        let environment = ProcessInfo.processInfo.environment
        let first = environment["HAPAX_HISTORY_SEED"].flatMap { UInt64($0) }
        let count = environment["HAPAX_EMBEDDED_HISTORIES"].flatMap { Int($0) } ?? (first == nil ? 12 : 1)
        let start = first ?? 1
        return (0..<UInt64(max(count, 1))).map { start + $0 }
    }()

    @Test(
        "whatever fails, each event reported durable is stored, a dead letter, or counted; no number is given to two (I1, I2, I3, I7, I11, I12)",
        arguments: seeds)
    func embeddedHistoryKeepsThePromises(seed: UInt64) async throws {
        let history = EmbeddedHistory(seed: seed)
        let audit = try await withTaskCancellationHandler {
            try await history.live()
        } onCancel: {
            print("seed \(seed) hangs:\n\(history.account)")
        }
        print("  \(seed): \(audit)")
        #expect(audit.violations == [], "seed \(seed):\n\(history.account)")
    }

    @Test("Control: each broken promise, planted in the books of a history, is seen")
    func plantedViolationsAreSeen() async throws {
        // No damage, quota or copy.
        let end = try await EmbeddedHistory(seed: 1, lives: 1, isCalm: true).live()
        try #require(end.violations == [] && end.promised.count > 3)
        let event = try #require(end.promised.intersection(end.stored).first)
        var gone = end
        gone.stored.remove(event)
        #expect(gone.violations == [.missing(1, counted: 0, lost: 0), .missingForNoReason(1)])
        func violations(_ audit: EmbeddedHistoryAudit, _ change: (inout EmbeddedHistoryAudit) -> Void) -> [EmbeddedHistoryAudit.Violation] {
            var audit = audit
            change(&audit)
            return audit.violations
        }
        // Purged; told as lost at an end; counted, with and without a reason for it.
        #expect(violations(gone) { $0.excused.insert(event) } == [])
        #expect(violations(gone) { $0.lost = 1 } == [])
        #expect(violations(gone) { $0.dropped = ["damaged": 1] } == [.missingForNoReason(1)])
        gone.isDamaged = true
        #expect(violations(gone) { $0.dropped = ["damaged": 1] } == [])
        // Told with too small a number, and without one.
        #expect(violations(gone) { $0.damage = [#"{"$lost":0}"#] } == [.missing(1, counted: 0, lost: 0)])
        #expect(violations(gone) { $0.damage = ["{}"] } == [])
        #expect(violations(gone) { $0.isTakenBack = true } == [])
        #expect(violations(end) { $0.refused.insert(event) } == [.refusedAndThere(1)])
        #expect(violations(end) { $0.flush.remaining = 1 } == [.undelivered])
        #expect(violations(end) { $0.holdsMore = true } == [.undelivered])
        #expect(violations(end) { $0.status.stored += 1 } == [.unbalanced])
        #expect(violations(end) { $0.complaints = ["two of one number"] } == [.complaint("two of one number")])
    }

    @Test("Control: the server of a history sees a number of two events, and other bytes under an id")
    func serverComplains() async throws {
        let server = MoodyServer(seed: 1)
        let (first, second) = (EventID.derived(name: "control", key: "1"), EventID.derived(name: "control", key: "2"))
        func send(_ id: EventID, sequence: Int64, _ name: String = "event") async throws -> Int {
            let event = #"{"event_id":"\#(id)","event":"\#(name)","time":1,"distinct_id":"d","sequence":\#(sequence),"properties":{}}"#
            let batch = EventBatch(envelope: EventBatch.Envelope(installID: first), events: [Array(event.utf8)])
            let request = TransportRequest(url: "", headers: [], body: batch.encoded(), timeout: .zero)
            _ = await server.answer(try #require(SentBatch(request)))
            return server.state.withLock { $0.complaints.count }
        }
        #expect(try await send(first, sequence: 1) == 0)
        #expect(try await send(first, sequence: 1) == 0)
        #expect(try await send(second, sequence: 1) == 1)
        #expect(try await send(first, sequence: 1, "other") == 2)
        #expect(try await send(first, sequence: 2) == 3)
    }
}
