import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport

@testable import HapaxClient

/// One directory, one server, and everything that was said about it.
final class EmbeddedHistory: Sendable {
    private let seed: UInt64
    private let lives: Int?
    /// Nothing fails, and nothing is thrown away.
    private let isCalm: Bool
    private let directory = TemporaryDirectory()
    private let clock = TestClock()
    private let server: MoodyServer
    private let disk: FaultyDisk
    private let log = Locked<[String]>([])
    private let random: Locked<SeededRandom>
    private let told = Locked(Told())

    private struct Told {
        var stored: Set<EventID> = []
        var refused: Set<EventID> = []
        var excused: Set<EventID> = []
        var lost = 0
        var damages = 0
        /// By the quota of each install, as its file said when it was closed.
        var removed: [EventID: [String: Int64]] = [:]
        var discards = false
        var isTakenBack = false
        var events = 0
    }

    init(seed: UInt64, lives: Int? = nil, isCalm: Bool = false) {
        (self.seed, self.lives, self.isCalm) = (seed, lives, isCalm)
        random = Locked(SeededRandom(seed: seed))
        server = MoodyServer(seed: seed &+ 7)
        disk = FaultyDisk(directory.path)
    }

    private func pick(_ range: ClosedRange<Int>) -> Int { random.withLock { Int.random(in: range, using: &$0) } }
    private func chance(_ percent: Int) -> Bool { pick(0...99) < percent }
    private func say(_ line: String) { log.withLock { $0.append(line) } }

    /// What was done, as far as it has come.
    var account: String { log.withLock { $0.joined(separator: "\n") } }

    private func open(quota: QueueQuota) throws -> TestClient {
        try TestClient(directory: directory, clock: clock, transport: ScriptedTransport(server.answer)) {
            $0.queue.quota = quota
            $0.queue.durability = seed % 3 == 0 ? .power : .process
            $0.uploads.interval = seed % 2 == 0 ? .seconds(15) : nil
            $0.uploads.bulkSize = 10
            $0.batchSize = 7
        }
    }

    private func quota() -> QueueQuota {
        var quota = QueueQuota.unlimited
        guard chance(20), !isCalm else { return quota }
        told.withLock { $0.discards = true }
        quota.maximumEvents = pick(10...60)
        quota.policy = chance(50) ? .reject : .dropOldest
        if chance(30) { quota.maximumAge = .seconds(500) }
        return quota
    }

    // MARK: - Callers

    private func track(_ client: EventClient, _ count: Int) async {
        for _ in 0..<count {
            let number = told.withLock { told in
                told.events += 1
                return told.events
            }
            let id = EventID.derived(name: "embedded \(seed)", key: "\(number)")
            let name =
                switch pick(0...29) {
                case 0: "rejected"
                case 1: "poison"
                case 2: String(repeating: "n", count: 201)
                default: "event"
                }
            let fill = Properties(dictionaryLiteral: ("fill", String(repeating: "x", count: [10, 400, 3_000][pick(0...2)])))
            do throws(TrackError) {
                try await client.trackDurably(name, properties: fill, id: id)
                told.withLock { _ = $0.stored.insert(id) }
            } catch {
                switch error {
                case .refused, .removed: told.withLock { _ = $0.refused.insert(id) }
                case .notStored, .shutDown, .cancelled: break
                }
            }
        }
    }

    private func disturb(_ test: TestClient, _ name: String, steps: Int) async {
        for _ in 0..<steps {
            await disturb(test, name)
            for _ in 0..<pick(0...60) { await Task.yield() }
        }
    }

    private func disturb(_ test: TestClient, _ name: String) async {
        let client = test.client
        switch pick(0...(isCalm ? 35 : 99)) {
        case 0..<30: say("\(name) flush \(await client.flush())")
        case 30..<36:
            async let first = client.flush()
            async let second = client.flush()
            say("\(name) flushes \(await [first, second])")
        case 36..<46:
            let rough = chance(60)
            server.state.withLock { $0.isRough = rough }
        case 46..<58: clock.advance(by: .seconds([1, 10, 100, 600][pick(0...3)]))
        case 58..<70:
            let code: ResultCode = [.SQLITE_IOERR_READ, .SQLITE_IOERR_WRITE, .SQLITE_IOERR_FSYNC, .SQLITE_FULL][pick(0...3)]
            let operations: Set<FaultyDisk.Operation> =
                code == .SQLITE_IOERR_READ ? [.read, .open] : code == .SQLITE_IOERR_FSYNC ? [.sync] : [.write, .truncate]
            let (at, count) = (pick(0...30), pick(1...6))
            say("disk fails: \(code) at \(at), \(count)")
            disk.fail(.init(at: at, count: count, code: code.rawValue, operations: operations))
        case 70..<74: disk.fail(nil)
        case 74..<78: damage(test, name)
        case 78..<84: await deadLetters(client, name)
        case 84..<87: say("\(name) \(await client.status().depth) waiting")
        case 87..<90:
            client.updateUploads { $0.interval = .seconds(pick(5...60)) }
            client.updateUploads { $0.bulkSize = pick(1...100) }
            client.updateUploads { $0.networks = chance(30) ? [] : .standard }
        case 90..<93: say("\(name) step \(await client.flushNextBatch())")
        case 93..<95:
            do {
                // In one history what waits is never denied.
                try client.setConsent(seed % 5 < 2 ? .denied : .pending)
                for _ in 0..<pick(0...20) { await Task.yield() }
                try client.setConsent(.granted)
            } catch { say("\(name) consent: \(error)") }
        case 95..<97: client.identify("ann\(pick(0...3))")
        default: client.handle([.didBecomeActive, .didEnterBackground, .willEnterForeground, .willResignActive][pick(0...3)])
        }
    }

    private func damage(_ test: TestClient, _ name: String) {
        guard told.withLock({ $0.damages < 2 }) else { return }
        let queue = test.client.file
        let path = queue.directory.databasePath(queue.number)
        guard let pages = DamagedPage.pages(of: path), pages > 2 else { return }
        let page = pick(0...pages - 1)
        told.withLock { $0.damages += 1 }
        let bytes = chance(50) ? 64 : QueueRoom.pageBytes
        say("\(name) damage of page \(page) of \(pages), \(bytes) bytes")
        try? DamagedPage.make(in: path, page: page, bytes: bytes)
        if chance(60) { try? queue.readPagesAnew() }
    }

    private func deadLetters(_ client: EventClient, _ name: String) async {
        do {
            switch pick(0...2) {
            case 0: say("\(name) retries \(try await client.deadLetters.retry().retried.count) letters")
            case 1:
                let deadLetters = try await client.deadLetters.list(limit: 3)
                // Before: it may be gone although the call fails.
                told.withLock { $0.excused.formUnion(deadLetters.compactMap(\.eventID)) }
                say("\(name) purges \(try await client.deadLetters.purge(deadLetters.map(\.number))) letters")
            default:
                let count = Locked(0)
                say("\(name) exports \(try await client.deadLetters.export { _ in count.withLock { $0 += 1 } }) letters")
            }
        } catch { say("\(name) letters: \(error)") }
    }

    // MARK: - Lives

    func live() async throws -> EmbeddedHistoryAudit {
        for life in 0..<(lives ?? pick(2...5)) { try await live(life) }
        return try await audit()
    }

    private func start(_ name: String, _ quota: QueueQuota) async throws -> TestClient {
        for _ in 0..<200_000 {
            do {
                return try open(quota: quota)
            } catch {
                say("\(name) does not start: \(error)")
                disk.fail(nil)
            }
        }
        throw NeverReady()
    }

    private struct NeverReady: Error {}

    /// What a shutdown did not wait for may still be closing its files.
    private func insist(_ body: () throws -> Void) async throws {
        for _ in 0..<200_000 {
            do { return try body() } catch { await Task.yield() }
        }
        throw NeverReady()
    }

    /// While nobody has one of the files: a copy of one that is being closed is torn.
    private func insistAlone(_ body: () throws -> Void) async throws {
        let queue = QueueDirectory(path: directory.path + "/queue")
        try await insist {
            var claims: [FileClaim] = []
            defer { for claim in claims { claim.release() } }
            for number in try queue.numbers() { claims.append(try FileClaim(number, in: queue)) }
            try body()
        }
    }

    private func copyQueue(to path: String) async throws {
        await end(try await start("before the copy", .unlimited), "before the copy")
        try await insistAlone {
            try? FileManager.default.removeItem(atPath: path)
            try FileManager.default.copyItem(atPath: directory.path + "/queue", toPath: path)
        }
    }

    /// What a failing disk did not store is tried again when the time has come, and a client's end has its limit.
    private func whileTimePasses<Value: Sendable>(_ body: () async -> Value) async -> Value {
        let ticking = Task { [clock, disk] in
            var ticks = 0
            while !Task.isCancelled {
                for _ in 0..<2_000 { await Task.yield() }
                ticks += 1
                if ticks % 20 == 0 { disk.fail(nil) }
                clock.advance(by: .seconds(30))
            }
        }
        let value = await body()
        ticking.cancel()
        await ticking.value
        return value
    }

    private func live(_ life: Int) async throws {
        let copy = directory.path + "/copy"
        let isTakenBack = life > 0 && chance(12) && !isCalm
        let before = told.withLock { $0.stored }
        if isTakenBack { try await copyQueue(to: copy) }
        let quota = quota()
        let main = try await start("main \(life)", quota)
        let spool = chance(45) ? try await start("spool \(life)", quota) : nil
        say("life \(life) \(quota) spool \(spool != nil) taken back \(isTakenBack)")
        let callers = (pick(1...4), pick(2...25))
        let steps = pick(3...20)
        let endsEarly = chance(25)
        await whileTimePasses {
            await withTaskGroup(of: Void.self) { group in
                for _ in 0..<callers.0 { group.addTask { await self.track(main.client, callers.1) } }
                if let spool { for _ in 0..<2 { group.addTask { await self.track(spool.client, callers.1) } } }
                group.addTask { await self.disturb(main, "main", steps: steps) }
                if let spool, self.chance(50) { group.addTask { await self.disturb(spool, "spool", steps: steps / 2) } }
                if endsEarly {
                    for _ in 0..<pick(1...400) { await Task.yield() }
                    group.addTask { await self.end(main, "main early") }
                }
            }
        }
        let isSpoolFirst = chance(50)
        if isSpoolFirst, let spool { await end(spool, "spool") }
        await end(main, "main")
        if !isSpoolFirst, let spool { await end(spool, "spool") }
        if isTakenBack {
            told.withLock { $0.isTakenBack = true }
            disk.fail(nil)
            await end(try await start("before the copy's return", .unlimited), "before the copy's return")
            try await insistAlone { try FileManager.default.removeItem(atPath: directory.path + "/queue") }
            try FileManager.default.moveItem(atPath: copy, toPath: directory.path + "/queue")
            told.withLock { $0.excused.formUnion($0.stored.subtracting(before)) }
        }
    }

    private func end(_ test: TestClient, _ name: String) async {
        let counters = test.client.file.counters
        say("\(name) is to end: \(counters)")
        let removed: Set = ["quota_age", "quota_oldest", "quota_dead_letter"]
        told.withLock { $0.removed[counters.installID] = counters.dropped.filter { removed.contains($0.key) } }
        let report = await whileTimePasses { await test.client.shutdown(within: .zero) }
        say("\(name) ends: \(report)")
        if !name.contains("early") { told.withLock { $0.lost += report.lost } }
    }

    // MARK: - The end

    private func audit() async throws -> EmbeddedHistoryAudit {
        disk.fail(nil)
        server.state.withLock { $0.isRough = false }
        clock.advance(by: .seconds(1_000))
        // Of clients that have ended some may still be closing their files.
        _ = try await whole()
        let client = try await start("last", .unlimited).client
        var report = await client.flush()
        for round in 0..<30 where round < 2 || report.failure != nil || report.remaining > 0 || client.file.isRecovering {
            say("last flush \(report), \(await client.leftovers.send(isManual: true))")
            clock.advance(by: .seconds(1_000))
            // A file may still be in the hands of a client that has ended.
            for _ in 0..<2_000 { await Task.yield() }
            // One that is accepted: what alone is refused waits for it.
            client.track("witness")
            report = await client.flush()
        }
        let status = await client.status()
        await client.shutdown(within: .zero)
        let contents = try await whole()
        let deadLetters = contents.files.flatMap { $0.deadLetters.compactMap(\.eventID) }
        let (told, state) = (told.withLock { $0 }, server.state.withLock { $0 })
        let audit = EmbeddedHistoryAudit(
            promised: told.stored, refused: told.refused, excused: told.excused, lost: told.lost, isDamaged: told.damages > 0,
            discards: told.discards, isTakenBack: told.isTakenBack, stored: Set(state.stored.keys), deadLetters: Set(deadLetters),
            complaints: state.complaints, damage: state.damage, dropped: counted(contents, state), status: status, flush: report,
            holdsMore: contents.waiting > 0)
        say("\(audit)")
        return audit
    }

    /// What lies in the directory, once nobody holds any of it.
    private func whole() async throws -> QueueContents {
        var contents: QueueContents?
        try await insist {
            let found = try QueueContents(directory.path("queue"))
            guard try found.files.count == QueueDirectory(path: directory.path("queue")).numbers().count else { throw NeverReady() }
            contents = found
        }
        guard let contents else { throw NeverReady() }
        say("\(contents.files.map(\.counters))")
        return contents
    }

    /// What the files have counted, what damaged ones said before they were, and what is lost with them.
    private func counted(_ contents: QueueContents, _ server: MoodyServer.State) -> [String: Int64] {
        var counted = contents.files.reduce(into: [String: Int64]()) { $0.merge($1.counters.dropped, uniquingKeysWith: +) }
        for reason in ["opted_out", "quota_full", "shut_down", "mailbox_full"] { counted[reason] = nil }
        let current = Set(contents.files.map(\.counters.installID))
        // A damaged file takes with it what its quota had removed and was not told yet: exact counts after damage are not promised.
        let before = told.withLock { $0.removed }.merging(server.gone) { $0.merging($1, uniquingKeysWith: max) }
        for (install, counts) in before where !current.contains(install) { counted.merge(counts, uniquingKeysWith: +) }
        for damage in server.damage {
            for match in damage.matches(of: /"\$lost(?:_dead_letters)?":([0-9]+)/) { counted["lost", default: 0] += Int64(match.1) ?? 0 }
        }
        return counted
    }
}
