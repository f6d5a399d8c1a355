import Foundation
import HapaxModel
import TestSupport
import Testing

/// Long random lives of one queue: workers and commands that are killed, damage, full disks, a server and a network that fail; then the books.
///
/// Each history follows from its seed, but for the moments at which processes are killed. Every run lives the first few;
/// `HAPAX_HISTORIES=500` lives the first so many, `HAPAX_HISTORY_SEED=n` only the one of that seed; with both, that many from that seed on.
@Suite("Random histories", .serialized, .endsWhenItHangs)
struct HistoryTests {
    private static let seeds: [UInt64] = {
        let environment = ProcessInfo.processInfo.environment
        let first = environment["HAPAX_HISTORY_SEED"].flatMap { UInt64($0) }
        let count = environment["HAPAX_HISTORIES"].flatMap { Int($0) } ?? (first == nil ? 6 : 1)
        let start = first ?? 1
        return (0..<UInt64(max(count, 1))).map { start + $0 }
    }()

    @Test(
        "whatever happens, each event reported durable is stored once, or a dead letter, or told as lost (I1, I2, I3, I6, I7, I11, I12)",
        arguments: seeds)
    func historyKeepsThePromises(seed: UInt64) async throws {
        let plan = HistoryPlan(seed: seed)
        print("seed of historyKeepsThePromises: \(seed)")
        let history = try await History(plan)
        let end = Self.endIfItHangs(history)
        defer { end.cancel() }
        let audit = try await history.live()
        let violations = audit.violations
        print("  \(plan.steps.count) steps, \(audit)")
        let log = await history.log.joined(separator: "\n")
        #expect(violations == [], "\(plan)\n\(log)")
    }

    /// What hangs ends the run, and says where it was.
    private static func endIfItHangs(_ history: History) -> Task<Void, any Error> {
        Task {
            try await Task.sleep(for: .seconds(480))
            let log = await history.log.joined(separator: "\n")
            print("\(log)\n\(history.plan)\nIt hangs; \(history.proxy.openConnections) connections of its proxy are open.")
            exit(1)
        }
    }

    // MARK: - Controls

    /// An end that keeps every promise.
    private func calmEnd() async throws -> HistoryAudit {
        var plan = HistoryPlan(seed: 1, limits: .init(damage: false, purges: false, tinyDisk: false, postgres: false))
        plan.steps = [(.work(HistoryStep.Work()), .rough), (.track(HistoryStep.Tracks(count: 2)), .down), (.flush(killAfter: 1), .rough)]
        let audit = try await History(plan).live()
        try #require(audit.violations == [] && audit.reports.count > 20)
        return audit
    }

    @Test("Control: each broken promise, planted in the books of a history, is seen")
    func plantedViolationsAreSeen() async throws {
        let end = try await calmEnd()
        let report = try #require(end.reports.last)
        let row = try #require(end.rows.firstIndex { $0.id == report.id })
        func violations(_ change: (inout HistoryAudit) -> Void) -> [HistoryAudit.Violation] {
            var audit = end
            change(&audit)
            return audit.violations
        }
        // The row of a reported event is gone; so much more is told as lost; less is.
        #expect(violations { $0.rows.remove(at: row) }.contains(.lost(report.mark)))
        let gone = violations { audit in
            audit.rows.remove(at: row)
            (audit.lastPurge, audit.purged) = (report.step, 1)
        }
        #expect(!gone.contains(.lost(report.mark)) && !gone.contains(.lossUntold(missing: 1, told: 1)))
        #expect(
            violations { audit in
                audit.rows.remove(at: row)
                audit.lastPurge = report.step
            }.contains(.lossUntold(missing: 1, told: 0)))
        // A report of an event that nobody has.
        var invented = report
        invented.id = .derived(name: "nobody", key: "tracked this")
        #expect(violations { $0.reports.append(invented) }.contains(.lost(report.mark)))
        // A row twice, a row that nobody tracked, a row that is not what was tracked.
        var stored = end.rows[row]
        #expect(violations { $0.rows.append(stored) } == [.storedTwice(report.mark)])
        #expect(violations { $0.spokenOf = [:] }.contains(.unexpected(report.id, report.mark)))
        stored.isWhole = false
        #expect(violations { $0.rows[row] = stored } == [.changed(report.id, report.mark)])
        // Stored after a purge, and after an opt-out.
        let purge = HistoryAudit.Purge(step: report.step + 1, stored: Set(end.rows.map(\.id)).subtracting([report.id]), deadLetters: [])
        #expect(violations { $0.purges = [purge] } == [.storedAfterPurge(report.mark, step: purge.step)])
        #expect(violations { $0.refused = [report.mark] } == [.storedAlthoughRefused(report.mark)])
        // Books that do not add up, and a queue that is not empty.
        #expect(violations { $0.status?.stored += 1 }.count == 1)
        #expect(violations { $0.status?.waiting += 1 }.count == 2)
        #expect(violations { $0.status?.dropped["damaged"] = 1 }.count == 1)
    }
}
