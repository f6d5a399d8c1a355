import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// The real queue over a disk whose power is cut behind every change that SQLite makes, and what is left opened again by the real queue.
// Ten minutes: all of these suites share one thread, and the limit runs while a test waits for it.
@Suite("A queue whose power is cut (I1, I6, I7, I11, I12)", .takesTurns, .endsWhenItHangs(after: .seconds(600)))
struct PowerCutTests {
    /// More with `HAPAX_POWER_CUTS=20`.
    private static let seeds: ClosedRange<UInt64> = {
        let count = ProcessInfo.processInfo.environment["HAPAX_POWER_CUTS"].flatMap { UInt64($0) } ?? 2
        return 1...max(count, 1)
    }()

    /// What is promised at one moment.
    private struct Promise: Sendable {
        /// In the order in which they were stored; those of which delivery has begun are not promised any more.
        var events: [EventID] = []
        /// Given by this install.
        var sequence: Int64 = 0
        var install: EventID?
    }

    private struct Moment: Sendable {
        var promise: Promise
        var cut: PowerCutDisk.Cut
    }

    /// The life of one queue, and what a cut would have left at each of its moments.
    private final class Life: Sendable {
        let directory = TemporaryDirectory()
        let disk: PowerCutDisk
        private let durability: Durability
        private let isDamaged: Bool
        let moments = Locked<[Moment]>([])
        private let promise = Locked(Promise())
        private let numbers = Locked(Int64(0))
        private let random: Locked<SeededRandom>

        init(_ durability: Durability, seed: UInt64, isDamaged: Bool) {
            (self.durability, self.isDamaged, random) = (durability, isDamaged, Locked(SeededRandom(seed: seed)))
            disk = PowerCutDisk(directory.path)
            disk.observe { [weak self] in self?.look() }
        }

        private func pick(_ range: ClosedRange<Int>) -> Int { random.withLock { Int.random(in: range, using: &$0) } }

        /// Not behind each change: files are long.
        private func look() {
            guard pick(0...5) == 0 else { return }
            let moment = Moment(promise: promise.withLock { $0 }, cut: disk.cut())
            moments.withLock { $0.append(moment) }
        }

        private func open() throws -> QueueFile { try QueueFile.open(directory.path, durability: durability) }

        func live() async throws {
            var queue = try open()
            for _ in 0..<40 {
                switch pick(0...19) {
                case 0..<11: try append(to: queue, pick(1...8))
                case 11..<16: try deliver(from: queue, pick(1...6))
                case 16:
                    let deadLetters = try queue.deadLetters(after: 0, limit: 2)
                    _ = try queue.retryDeadLetters(deadLetters.map(\.number))
                case 17 where isDamaged: damage(queue)
                default:
                    queue.close()
                    queue = try open()
                    try queue.recover()
                }
            }
            queue.close()
        }

        private func append(to queue: QueueFile, _ count: Int) throws {
            let first = numbers.withLock { number in
                defer { number += Int64(count) }
                return number + 1
            }
            let events = (0..<Int64(count)).map { PreparedEvent.sample(first + $0, fill: [10, 700, 3_000][pick(0...2)]) }
            try queue.append(events)
            let counters = queue.counters
            promise.withLock {
                $0 = Promise(events: $0.events + events.map(\.id), sequence: counters.created, install: counters.installID)
            }
        }

        private func deliver(from queue: QueueFile, _ count: Int) throws {
            let batch = try queue.nextBatch(.oldest(limit: count), maximumBytes: .max, now: 0)
            let delivered = Set(batch.events.map(\.id))
            promise.withLock { promise in promise.events.removeAll { delivered.contains($0) } }
            let fates = batch.events.map { _ in pick(0...4) }
            // A dead letter is as durable as an event.
            let buried = zip(batch.events, fates).filter { $1 == 0 }.map(\.0.id)
            let settlements = zip(batch.events, fates).map {
                Settlement(event: $0, fate: $1 == 0 ? .deadLetter(reason: "r", detail: "d") : .stored)
            }
            try queue.settle(BatchOutcome(settlements: settlements), now: 0)
            promise.withLock { $0.events = buried + $0.events }
        }

        /// As SQLite says it, with all of it to be read.
        private func damage(_ queue: QueueFile) {
            var isDamaged = true
            try? queue.reading { _ in
                if isDamaged {
                    isDamaged = false
                    throw DatabaseError(resultCode: .SQLITE_CORRUPT)
                }
            }
            promise.withLock { $0.sequence = 0 }
            if pick(0...1) == 0 { try? queue.recover() }
        }
    }

    /// What the next client finds.
    private struct Found {
        var events: Set<EventID>
        var counters: QueueCounters
        var isSetAside: Bool
    }

    private static func find(
        _ cut: PowerCutDisk.Cut, _ survival: PowerCutDisk.Survival, _ durability: Durability, seed: UInt64
    ) async throws -> Found {
        let directory = TemporaryDirectory()
        var random = SeededRandom(seed: seed)
        try cut.restore(to: directory.path, survival, using: &random)
        let queue = try QueueFile.open(directory.path, durability: durability)
        defer { queue.close() }
        try queue.recover()
        let ids = try queue.reading { db in
            try Data.fetchSet(db, sql: "SELECT event_id FROM events UNION SELECT event_id FROM dead_letters")
        }
        return Found(
            events: Set(ids.compactMap { EventID(bytes: $0) }), counters: queue.counters,
            isSetAside: try QueueDirectory(path: directory.path).filesSetAside().count > cut.filesSetAside)
    }

    /// Promises that what is left of a moment breaks.
    private static func broken(_ moment: Moment, _ found: Found) -> [String] {
        var broken: [String] = []
        let missing = moment.promise.events.filter { !found.events.contains($0) }
        if !missing.isEmpty { broken.append("\(missing.count) of \(moment.promise.events.count) missing") }
        if found.counters.installID == moment.promise.install, found.counters.created < moment.promise.sequence {
            broken.append("sequence \(found.counters.created) of \(moment.promise.sequence)")
        }
        return broken
    }

    /// What each of the moments of some lives can leave.
    ///
    /// - Returns: How many there were.
    private static func cut(
        _ durability: Durability, isDamaged: Bool, _ body: (_ moment: Moment, _ found: Found, _ place: Comment) -> Void
    ) async throws -> Int {
        var cuts = 0
        for seed in Self.seeds {
            let life = Life(durability, seed: seed, isDamaged: isDamaged)
            try await life.live()
            for (index, moment) in life.moments.withLock({ $0 }).enumerated() {
                for survival in PowerCutDisk.Survival.allCases where survival == .nothing || !moment.cut.isFlushed {
                    let found = try await find(moment.cut, survival, durability, seed: seed)
                    body(moment, found, "seed \(seed), moment \(index), \(survival) survives, set aside: \(found.isSetAside)")
                    cuts += 1
                }
            }
        }
        return cuts
    }

    @Test("at `power` each event of which a call had returned is there behind a cut, and no number comes again (I6, I7)")
    func powerSurvivesACut() async throws {
        var asides = 0
        let cuts = try await Self.cut(.power, isDamaged: true) { moment, found, place in
            #expect(Self.broken(moment, found) == [], place)
            asides += found.isSetAside ? 1 : 0
        }
        print("  \(cuts) cuts, \(asides) files set aside")
        #expect(cuts > 200)
    }

    @Test("Control: at `process` a cut loses what is not flushed, and only the latest (I6)")
    func processLosesTheLatest() async throws {
        var lost = 0
        let cuts = try await Self.cut(.process, isDamaged: false) { moment, found, place in
            lost += Self.broken(moment, found).isEmpty ? 0 : 1
            let events = moment.promise.events
            let missing = events.firstIndex { !found.events.contains($0) } ?? events.endIndex
            #expect(events[missing...].filter(found.events.contains) == [], place)
        }
        #expect(cuts > 200 && lost > 20)
    }
}

extension QueueFile {
    /// All of it.
    fileprivate func recover() throws {
        try inChunks {
            try recoverChunk(now: 0) { name, id, _ in PreparedEvent(id: id, time: 0, bytes: Array("{\"event\":\"\(name)\"}".utf8)) }
        }
    }
}
