import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// See ``SalvageCutOffTests``.
@Suite("Making and purging a queue, cut off at any operation on the disk (I1, I6, I12)", .takesTurns, .timeLimit(.minutes(20)))
struct QueueCutOffTests {
    private static func event(_ sequence: Int64) -> PreparedEvent { .sample(sequence, fill: 700) }

    private static func open(_ path: String, _ key: String) throws -> EventQueue {
        try EventQueue(directory: QueueDirectory(path: path), durability: .process, newInstallID: .derived(name: "i", key: key))
    }

    private func drain(_ queue: EventQueue) async throws -> [EventID] {
        let source = QueueBatchSource(queue: queue, clock: ManualClock())
        var sent: [EventID] = []
        while true {
            let batch = try await source.nextBatch(limit: 100, maximumBytes: .max, skipping: 0)
            if batch.events.isEmpty { return sent }
            sent += batch.events.map(\.id)
            try await source.settle(batch.events.map { Settlement(event: $0, fate: .stored) })
        }
    }

    @Test("a queue whose making was cut off is made by the next run; what was stored is there, and nothing is set aside (D17)")
    func makingIsCutOff() async throws {
        var random = SeededRandom(seed: .random(in: 0...999_999))
        print("seed of makingIsCutOff: \(random.seed)")
        var number = 0
        while true {
            let directory = TemporaryDirectory()
            let path = directory.path("queue")
            let disk = FaultyDisk(directory.path)
            disk.cutOff(at: number)
            var isStored = false
            do {
                let queue = try Self.open(path, "first")
                defer { queue.close() }
                try queue.append((1...5).map { Self.event($0) }[...])
                isStored = true
            } catch {}
            let wasCutOff = disk.failures > 0
            disk.fail(nil)
            // Who looks before finds no queue, or one that is whole.
            if !isStored, let reader = try QueueReader(directory: QueueDirectory(path: path)) {
                _ = try reader.summary()
                _ = try reader.keptIdentity()
            }
            let queue = try Self.open(path, "next")
            let sent = try await drain(queue)
            #expect(sent.count == 5 || sent.isEmpty && !isStored, "cut off at operation \(number)")
            #expect(queue.books.isBalanced && queue.directory.filesSetAside.isEmpty, "cut off at operation \(number)")
            queue.close()
            if !wasCutOff { break }
            number += Int.random(in: 1...4, using: &random)
        }
        #expect(number > 20, "it was cut off")
    }

    @Test(
        "a purge that was cut off has happened or not, the rows of a damaged file included; once it returned they stay away",
        arguments: [false, true])
    func purgeIsCutOff(isDamaged: Bool) async throws {
        let base = TemporaryDirectory()
        let made = try Self.open(base.path("queue"), "first")
        try made.append((1...20).map { Self.event($0) }[...])
        var letter = Self.event(21)
        letter.problem = EventProblem(.nameTooLong, detail: "too long")
        try made.append([letter][...])
        made.close()
        if isDamaged { try DamagedPage.make(in: made.directory.databasePath, at: Self.event(8).id) }
        try FileManager.default.removeItem(atPath: made.directory.ballastPath)
        var random = SeededRandom(seed: .random(in: 0...999_999))
        print("seed of purgeIsCutOff(\(isDamaged)): \(random.seed)")
        var counts: Set<Int> = []
        var number = 0
        while true {
            let directory = TemporaryDirectory()
            let path = directory.path("queue")
            try FileManager.default.copyItem(atPath: base.path("queue"), toPath: path)
            let disk = FaultyDisk(directory.path)
            disk.cutOff(at: number)
            var isPurged = false
            do {
                let queue = try Self.open(path, "second")
                defer { queue.close() }
                // As a client does.
                await queue.salvage()
                _ = try queue.purge()
                isPurged = true
            } catch {}
            let wasCutOff = disk.failures > 0
            disk.fail(nil)
            let queue = try Self.open(path, "next")
            let sent = try await drain(queue)
            let letters = Int(queue.books.letters)
            counts.insert(sent.count)
            #expect(sent.isEmpty == (letters == 0), "cut off at operation \(number): all or nothing")
            #expect(!isPurged || sent.isEmpty, "cut off at operation \(number): what was purged stays away")
            #expect(Set(sent).count == sent.count && queue.books.isBalanced, "cut off at operation \(number)")
            queue.close()
            if !wasCutOff { break }
            number += Int.random(in: 1...4, using: &random)
        }
        #expect(counts.count == 2 && number > 20, "either all of it, or nothing: \(counts)")
    }
}
