import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// What callers, subscribers, the books and the server say of the same events, whose queue is small, while commits and requests fail.
@Suite("Histories of a small queue (I1, I12)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct QuotaHistoryTests {
    private let directory = TemporaryDirectory()
    private let clock = ManualClock()
    private let server = Server()

    /// Remembers what it has stored.
    private final class Server: Sendable {
        enum Mood: CaseIterable { case answers, cutsBefore, cutsBehind }

        let mood = Locked(Mood.answers)
        let stored = Locked<Set<EventID>>([])
        static let refusedName = "refused"

        @Sendable func answer(_ batch: SentBatch) -> Result<TransportAnswer, TransportFailure> {
            let mood = mood.withLock { $0 }
            guard mood != .cutsBefore else { return .failure(.cut) }
            let answer = stored.withLock { stored in
                batch.receipt { event in
                    guard event.name != Array(Self.refusedName.utf8)[...], let id = event.id else { return .rejected }
                    return stored.insert(id).inserted ? .stored : .duplicate
                }
            }
            return mood == .answers ? .success(answer) : .failure(.cut)
        }
    }

    private struct Plan: Sendable {
        var id: EventID
        var name: String
        var time: Int64?
    }

    private enum Told: Hashable { case stored, discarded, refused, notStored }

    private func open(_ quota: QueueQuota) throws -> TestClient {
        try TestClient(directory: directory, clock: clock, transport: ScriptedTransport(server.answer)) { $0.quota = quota }
    }

    private static func quota(_ random: inout SeededRandom) -> QueueQuota {
        var quota = QueueQuota()
        quota.maximumEvents = .random(in: 1...12, using: &random)
        quota.policy = Int.random(in: 0..<4, using: &random) == 0 ? .reject : .dropOldest
        quota.maximumAge = Bool.random(using: &random) ? .seconds(100) : nil
        return quota
    }

    private func plans(_ caller: Int, _ random: inout SeededRandom) -> [Plan] {
        (0..<20).map { number in
            let name = ["sold", "sold", "sold", "sold", Server.refusedName, String(repeating: "n", count: 201)].randomElement(
                using: &random)
            let isOld = Int.random(in: 0..<8, using: &random) == 0
            return Plan(
                id: .derived(name: "event", key: "\(caller) \(number)"), name: name ?? "sold",
                time: isOld ? clock.unixMilliseconds - 200_000 : nil)
        }
    }

    private static func track(_ plan: Plan, _ client: EventClient) async throws -> Told {
        do throws(TrackError) {
            try await client.trackDurably(plan.name, id: plan.id, time: plan.time)
            return .stored
        } catch {
            switch error {
            case .discarded: return .discarded
            case .refused(.quotaFull): return .refused
            case .notStored: return .notStored
            default: throw error
            }
        }
    }

    /// Uploads, and what goes wrong.
    private func disturb(_ test: TestClient, _ steps: [Int]) async throws {
        for step in steps {
            switch step {
            case 0..<4: _ = await test.client.flush()
            case 4..<7: server.mood.withLock { $0 = Server.Mood.allCases[step - 4] }
            default:
                try test.refuseCommits(true)
                for _ in 0..<50 { await Task.yield() }
                try test.refuseCommits(false)
                try? await test.client.writer.barrier(retrying: true)
            }
        }
        server.mood.withLock { $0 = .answers }
    }

    @Test(
        "whoever was told that an event is stored finds it delivered, dead, or counted; whoever was told that it is gone never sees it again; subscribers hear what the books say",
        arguments: 1...40)
    func everyoneTellsTheSame(seed: UInt64) async throws {
        var random = SeededRandom(seed: seed)
        let quota = Self.quota(&random)
        let test = try open(quota)
        let heard = Task { [deliveries = test.client.deliveries()] in
            var heard: [EventDelivery] = []
            for await delivery in deliveries { heard.append(delivery) }
            return heard
        }
        let told = Locked<[EventID: Told]>([:])
        let callers = (0..<6).map { plans($0, &random) }
        let steps = (0..<30).map { _ in Int.random(in: 0..<8, using: &random) }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for plans in callers {
                group.addTask {
                    for plan in plans {
                        let answer = try await Self.track(plan, test.client)
                        told.withLock { $0[plan.id] = answer }
                    }
                }
            }
            group.addTask { try await disturb(test, steps) }
            try await group.waitForAll()
        }
        try await test.client.writer.barrier(retrying: true)
        let last = (0..<5).compactMap { test.client.track("sold", id: .derived(name: "last", key: "\($0)")) }
        async let first = test.client.shutdown(within: .zero)
        async let second = test.client.shutdown(within: .zero)
        let reports = await [first, second]
        let books = test.client.queue.books

        let next = try open(quota)
        #expect(reports.map(\.stored) == Array(repeating: Int(next.client.queue.books.depth), count: 2) && reports.map(\.lost) == [0, 0])
        for _ in 0..<3 { _ = await next.client.flush() }
        let status = await next.client.status()
        #expect(status.isBalanced && status.depth == 0)
        let here = server.stored.withLock { $0 }.union(try next.client.deadLetters.list(limit: 1_000).compactMap(\.eventID))
        let answers = told.withLock { $0 }
        func all(_ answer: Told) -> [EventID] { answers.filter { $0.value == answer }.map(\.key) }
        #expect(here.isDisjoint(with: all(.discarded) + all(.refused)))
        let gone = Set(all(.stored) + all(.notStored) + last).subtracting(here).count + all(.discarded).count
        let counted = DiscardReason.allCases.reduce(0) { $0 + (status.dropped[$1.rawValue] ?? 0) }
        // More: what the server has, and nobody was told of, can be removed as well.
        #expect(counted >= gone, "\(status.dropped), \(gone) gone")
        #expect(Int(status.dropped["quota_full"] ?? 0) == all(.refused).count + 5 - last.count)

        var outcomes: [EventID: Int] = [:]
        var drops: [String: Int64] = [:]
        for delivery in await heard.value {
            switch delivery {
            case .stored(let id), .duplicate(let id), .rejected(let id, _, _): outcomes[id, default: 0] += 1
            case .dropped(let reason, let count): drops[reason, default: 0] += Int64(count)
            case .missed(let count): Issue.record("\(count) missed")
            }
        }
        #expect(outcomes.values.allSatisfy { $0 == 1 })
        #expect(drops == books.drops.byReason.filter { $0.value > 0 })
        await next.client.shutdown(within: .zero)
    }
}
