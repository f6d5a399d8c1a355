import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// What only the embedded store has: its file.
@Suite("The store in a SQLite file", .serialized, .endsWhenItHangs)
struct SQLiteEventStoreTests {
    private static func open(_ path: String, time: @escaping @Sendable () -> Int64 = { Sample.now }) throws -> SQLiteEventStore {
        try SQLiteEventStore(path: path, currentTime: time)
    }

    @Test("One server at a time, by any name of the file; the second is told so (I2)")
    func fileIsLocked() async throws {
        let directory = TemporaryDirectory()
        let store = try Self.open(directory.path + "/events.sqlite")
        try FileManager.default.createSymbolicLink(
            atPath: directory.path + "/other.sqlite", withDestinationPath: directory.path + "/events.sqlite")
        for name in ["events.sqlite", "other.sqlite"] {
            let error = #expect(throws: StoreError.self) { try Self.open(directory.path + "/" + name) }
            #expect(error?.description.contains("another process has") == true)
        }
        await store.close()
        await (try Self.open(directory.path + "/other.sqlite")).close()
    }

    @Test("received_at never goes back, though the clock does, also over a restart")
    func receivedAtNeverGoesBack() async throws {
        let directory = TemporaryDirectory()
        let path = directory.path + "/events.sqlite"
        for (number, time, expected) in [(1, 1_000, 1_000), (2, 900, 1_000), (3, 1_001, 1_001), (4, 5, 1_001)] as [(UInt64, Int64, Int64)] {
            let store = try Self.open(path) { time }
            _ = try await store.commit(Sample.group([Sample.record(Sample.id(number))]), writer: 0)
            let last = try await store.database.read { try Int64.fetchOne($0, sql: "SELECT received_at FROM events ORDER BY row DESC") }
            #expect(last == expected)
            await store.close()
        }
    }

    @Test("S20: a running server empties its log into the file, and waits for no reader of an old state; a stop leaves one file")
    func fileAloneHoldsWhatWasStored() async throws {
        let (directory, copy) = (TemporaryDirectory(), TemporaryDirectory())
        let path = directory.path + "/events.sqlite"
        let store = try Self.open(path)
        var configuration = Configuration()
        configuration.allowsUnsafeTransactions = true
        for number: UInt64 in 1...3 {
            let reader = try DatabaseQueue(path: path, configuration: configuration)
            try await reader.writeWithoutTransaction { try $0.execute(sql: "BEGIN; SELECT count(*) FROM events") }
            _ = try await store.commit(Sample.group([Sample.record(Sample.id(number))]), writer: 0)
            try await store.refresh()
            try await reader.writeWithoutTransaction { try $0.execute(sql: "COMMIT") }
            try reader.close()
        }
        try await store.refresh()
        try FileManager.default.copyItem(atPath: path, toPath: copy.path + "/events.sqlite")
        let copied = try Self.open(copy.path + "/events.sqlite")
        for number: UInt64 in 1...3 {
            #expect(try await copied.reader.event(EventKey(id: Sample.id(number), projectID: 1)) != nil)
        }
        for (store, directory) in [(store, directory), (copied, copy)] {
            await store.close()
            #expect(
                try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted() == ["events.sqlite", "events.sqlite.lock"])
        }
    }

    // MARK: - Power cuts

    /// What had been acknowledged at a moment at which the power was cut.
    private struct Moment: Sendable {
        var acknowledged: [EventRecord]
        var cut: PowerCutDisk.Cut
    }

    /// - Returns: In how many of all cuts an acknowledged event was missing.
    private static func lossesAfterPowerCuts(seed: UInt64, prepare: (SQLiteEventStore) throws -> Void) async throws -> (lost: Int, of: Int)
    {
        let directory = TemporaryDirectory()
        let disk = PowerCutDisk(directory.path)
        let acknowledged = Locked<[EventRecord]>([])
        let moments = Locked<[Moment]>([])
        let changes = Locked(0)
        disk.observe {
            let count = changes.withLock { count in
                count += 1
                return count
            }
            // Not behind each: looking at what each cut leaves takes longer than making it.
            guard count % 4 == 0 else { return }
            moments.withLock { $0.append(Moment(acknowledged: acknowledged.withLock { $0 }, cut: disk.cut())) }
        }
        let store = try open(directory.path + "/events.sqlite")
        try prepare(store)
        var random = SeededRandom(seed: seed)
        var number: UInt64 = 0
        for _ in 0..<12 {
            let records = (0..<Int.random(in: 1...20, using: &random)).map { _ in
                number += 1
                return Sample.record(
                    Sample.id(number), properties: ["fill": String(repeating: "x", count: Int(number * 37 % 900))])
            }
            #expect(try await store.commit(Sample.group(records), writer: 0) == [:])
            acknowledged.withLock { $0 += records }
            moments.withLock { $0.append(Moment(acknowledged: acknowledged.withLock { $0 }, cut: disk.cut())) }
        }
        disk.observe {}
        await store.close()
        var (lost, cuts) = (0, 0)
        for moment in moments.withLock({ $0 }) {
            for survival in PowerCutDisk.Survival.allCases where survival == .nothing || !moment.cut.isFlushed {
                let left = TemporaryDirectory()
                let seed = random.next()
                // On a thread of its own: tests beside this one need those of the pool.
                let store = try await blocking {
                    var random = SeededRandom(seed: seed)
                    try moment.cut.restore(to: left.path, survival, using: &random)
                    return try open(left.path + "/events.sqlite")
                }
                let found = try await store.commit(Sample.group([], lookups: moment.acknowledged.map(\.key)), writer: 0)
                if found.count < moment.acknowledged.count { lost += 1 }
                await store.close()
                cuts += 1
            }
        }
        return (lost, cuts)
    }

    @Test("Behind a power cut at any moment each acknowledged event is there (I4)", arguments: 1...2 as ClosedRange<UInt64>)
    func acknowledgedSurvivesAPowerCut(seed: UInt64) async throws {
        let (lost, cuts) = try await Self.lossesAfterPowerCuts(seed: seed) { _ in }
        #expect(lost == 0 && cuts > 50, "\(lost) of \(cuts) cuts")
    }

    @Test("Control: with synchronous=NORMAL the same cuts lose acknowledged events")
    func withoutFlushTheSameCutsLose() async throws {
        let (lost, _) = try await Self.lossesAfterPowerCuts(seed: 1) { store in
            try store.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA synchronous = NORMAL") }
        }
        #expect(lost > 0)
    }
}
