import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// From one operation on its disk a process does nothing any more, as if it had been killed there; the next one goes on with what is left.
@Suite("A salvage that is cut off at any operation on the disk (I1, I7, I11, I12)", .takesTurns, .timeLimit(.minutes(20)))
struct SalvageCutOffTests {
    private static let who = Identity(anonymousID: "a-1", loginID: "anna")
    private static let session = EventQueue.OpenSession(start: event(1).id, lastActivity: 5)

    private static func event(_ sequence: Int64) -> PreparedEvent { .sample(sequence, fill: 700) }

    private static func open(_ path: String, _ key: String) throws -> EventQueue {
        try EventQueue(directory: QueueDirectory(path: path), durability: .process, newInstallID: .derived(name: "i", key: key))
    }

    /// Twenty events, the last of which breaks a limit.
    private static func store(after number: Int64, in queue: EventQueue) throws {
        for index in number + 1...number + 20 {
            var event = event(index)
            event.sequence = queue.books.lastSequence + 1
            if index == number + 20 { event.problem = EventProblem(.nameTooLong, detail: "too long") }
            try queue.append([event][...])
        }
    }

    /// As a client writes it again when its file has been replaced.
    private static func saveWho(in queue: EventQueue) throws {
        try queue.saveIdentity { who }
        try queue.save(session)
    }

    /// A queue before the run that is cut off.
    struct Scene: CustomTestStringConvertible, Sendable {
        var testDescription: String
        /// Leaves a closed queue in the directory.
        var make: @Sendable (_ path: String) throws -> Void
        /// Where it is damaged once it is open.
        var spoiled: EventID?
    }

    static let scenes = [
        Scene(testDescription: "damaged when it opens") { path in
            try fill(path)
            try DamagedPage.make(in: path + "/queue.sqlite", at: event(8).id)
        },
        Scene(testDescription: "damaged under a running client", make: { try fill($0) }, spoiled: event(2).id),
        Scene(testDescription: "two files, each damaged when it opened") { path in
            try fill(path)
            try DamagedPage.make(in: path + "/queue.sqlite", at: event(8).id)
            let second = try open(path, "second")
            try store(after: 100, in: second)
            second.close()
            try DamagedPage.make(in: path + "/queue.sqlite", at: event(108).id)
        },
        Scene(testDescription: "two files, each damaged under a running client") { path in
            try fill(path)
            let queue = try open(path, "second")
            for (damaged, first) in [(Int64(8), Int64(100)), (108, 200)] {
                try DamagedPage.make(in: queue, at: event(damaged).id)
                // Reads what is damaged.
                _ = try? queue.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
                try saveWho(in: queue)
                try store(after: first, in: queue)
            }
            queue.close()
        },
    ]

    private static func fill(_ path: String) throws {
        let queue = try open(path, "first")
        try store(after: 0, in: queue)
        try saveWho(in: queue)
        queue.close()
        // Large, and made anew when it opens.
        try FileManager.default.removeItem(atPath: queue.directory.ballastPath)
    }

    /// What a server was sent, over both runs.
    private struct Server {
        var sent: Set<EventID> = []
        /// What the client deleted: it must not come again.
        private var settled: Set<EventID> = []
        private(set) var sentAgain: Set<EventID> = []

        mutating func take(_ source: QueueBatchSource, limit: Int) async throws -> Bool {
            let batch = try await source.nextBatch(limit: limit, maximumBytes: .max, skipping: 0)
            let ids = batch.events.map(\.id)
            sentAgain.formUnion(settled.intersection(ids))
            sent.formUnion(ids)
            try await source.settle(batch.events.map { Settlement(event: $0, fate: .stored) })
            settled.formUnion(ids)
            return !ids.isEmpty
        }
    }

    /// What is left in the end.
    private struct Outcome: Equatable {
        var sent: Set<EventID>
        var letters: [String]
        var identity: EventQueue.SavedIdentity
        var session: EventQueue.OpenSession?
    }

    /// A run that is cut off, if it comes so far, and one that drains the queue.
    private func outcome(_ scene: Scene, _ base: TemporaryDirectory, cutAt number: Int?) async throws -> (Outcome, wasCutOff: Bool) {
        let directory = TemporaryDirectory()
        let path = directory.path("queue")
        try FileManager.default.copyItem(atPath: base.path("queue"), toPath: path)
        let disk = FaultyDisk(directory.path)
        var server = Server()
        do {
            if let number, scene.spoiled == nil { disk.cutOff(at: number) }
            let queue = try Self.open(path, "run")
            defer { queue.close() }
            var observer = DamageObserver()
            observer.state = {
                (EventQueue.SavedIdentity(anonymousID: Self.who.anonymousID, loginID: Self.who.loginID), Self.session)
            }
            queue.observeDamage(observer)
            if let spoiled = scene.spoiled {
                try DamagedPage.make(in: queue, at: spoiled)
                if let number { disk.cutOff(at: number) }
            }
            let source = QueueBatchSource(queue: queue, clock: ManualClock())
            for _ in 1...2 { _ = try await server.take(source, limit: 6) }
        } catch {}
        let wasCutOff = disk.failures > 0
        disk.fail(nil)

        let queue = try Self.open(path, "next")
        defer { queue.close() }
        let source = QueueBatchSource(queue: queue, clock: ManualClock())
        while try await server.take(source, limit: 100) {}
        #expect(server.sentAgain.isEmpty, "what was settled stays so")
        #expect(queue.books.isBalanced && queue.books.depth == 0, "(I12)")
        #expect(queue.latestDamage?.isSalvaged != false, "nothing is left to do")
        // There may be one more: a disk that fails in all of an opening's checks cannot be told from a damaged file.
        #expect(!queue.directory.filesSetAside.isEmpty)
        let letters = try queue.deadLetters(after: 0, limit: 100)
        #expect(Int(queue.books.letters) == letters.count)
        return (
            Outcome(
                sent: server.sent, letters: letters.map { $0.eventID?.description ?? "" }.sorted(), identity: try queue.identity(),
                session: try queue.openSession()), wasCutOff
        )
    }

    @Test("the next run delivers each row that can be read once; dead letters, identity and session stay", arguments: scenes)
    func nextRunGoesOn(scene: Scene) async throws {
        let base = TemporaryDirectory()
        try scene.make(base.path("queue"))
        try? FileManager.default.removeItem(atPath: base.path("queue/queue.ballast"))
        let (expected, _) = try await outcome(scene, base, cutAt: nil)
        #expect(expected.identity == EventQueue.SavedIdentity(anonymousID: "a-1", loginID: "anna") && expected.session == Self.session)
        #expect(expected.sent.count > 10)
        #expect(!expected.letters.isEmpty && Set(expected.letters).count == expected.letters.count)
        var random = SeededRandom(seed: .random(in: 0...999_999))
        print("seed of nextRunGoesOn(\(scene.testDescription)): \(random.seed)")
        var number = Int.random(in: 0..<Self.step, using: &random)
        while true {
            let (found, wasCutOff) = try await outcome(scene, base, cutAt: number)
            if !wasCutOff { break }
            #expect(found == expected, "cut off at operation \(number)")
            number += Int.random(in: 1...2 * Self.step - 1, using: &random)
        }
        #expect(number > 50, "it was cut off up to operation \(number)")
    }

    /// Between two cuts, on the average.
    private static let step = 6
}
