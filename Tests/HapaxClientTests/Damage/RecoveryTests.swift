import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

// Ten minutes: all of these suites share one thread, and the limit runs while a test waits for it.
@Suite("A damaged queue file (I1, I3, I7, I11, I12, D17)", .takesTurns, .endsWhenItHangs(after: .seconds(600)))
struct RecoveryTests {
    private let directory = TemporaryDirectory()
    private var path: String { directory.path("queue/1.sqlite") }

    /// A closed file of so many events.
    private func makeFile(_ count: Int64) throws -> (install: EventID, ids: [EventID]) {
        let file = try TestClient(directory: directory).client.file
        var ids: [EventID] = []
        for first in stride(from: Int64(1), through: count, by: 500) {
            let events = (first...min(first + 499, count)).map { PreparedEvent.sample($0, fill: 300) }
            try file.append(events)
            ids += events.map(\.id)
        }
        defer { file.close() }
        return (file.counters.installID, ids)
    }

    /// Sends everything.
    private func drain(_ test: TestClient) async -> [EventID] {
        for _ in 0..<20 {
            let report = await test.client.flush()
            if report.remaining == 0, !test.client.file.isRecovering { break }
        }
        return test.transport.batches.flatMap(\.scanned.events).filter { $0.name == Array("e".utf8)[...] }.compactMap(\.id)
    }

    @Test("a page of it is noise, whichever: what can be read comes under its ids, how much is lost is told, and no sequence comes again")
    func everyPageMayBeDamaged() async throws {
        let (install, ids) = try makeFile(600)
        let whole = try Data(contentsOf: URL(fileURLWithPath: path))
        let pages = try #require(DamagedPage.pages(of: path))
        var recoveries = 0
        let lock = URL(filePath: directory.path("queue/1.lock"))
        let note = try Data(contentsOf: lock)
        for page in 0..<pages {
            try whole.write(to: URL(fileURLWithPath: path))
            try DamagedPage.make(in: path, page: page)
            let test = try TestClient(directory: directory)
            let number = test.client.file.number
            let sent = await drain(test)
            let status = await test.client.status()
            #expect(Set(sent).isSubset(of: ids), "page \(page)")
            #expect(status.isBalanced, "page \(page)")
            let batches = test.transport.batches
            if let damage = status.damage {
                recoveries += 1
                #expect(damage.isRecovered && batches.flatMap(\.names).contains("$QueueDamaged"), "page \(page)")
                #expect(status.installID != install || number != 1, "page \(page): what took over is another install")
                if let lost = damage.lost { #expect(lost + sent.count >= ids.count, "page \(page): \(lost) lost, \(sent.count) sent") }
            } else {
                // An index's page may have gone unread, or rows have become dead letters one by one.
                #expect(sent.count + Int(status.deadLettered) >= ids.count, "page \(page)")
            }
            await test.client.shutdown(within: .zero)
            for file in try FileManager.default.contentsOfDirectory(atPath: directory.path("queue")) where file.hasPrefix("1.sqlite") {
                try FileManager.default.removeItem(atPath: directory.path("queue/" + file))
            }
            // The lock says of whom the file is again.
            try note.write(to: lock)
        }
        #expect(recoveries > pages / 4, "\(recoveries) of \(pages)")
    }

    /// What somebody, or a disk, has made of a file.
    enum Mishap: CaseIterable, Sendable {
        case emptied, withoutRoots, cutShort, swapped

        func happen(to file: URL) throws {
            let bytes = try Data(contentsOf: file)
            let page = QueueRoom.pageBytes
            func part(_ number: Int) -> Data { bytes[number * page..<(number + 1) * page] }
            let pages = bytes.count / page
            switch self {
            case .emptied: try Data().write(to: file)
            case .withoutRoots: try (part(0) + Data(count: 11 * page) + bytes[12 * page..<bytes.count]).write(to: file)
            case .cutShort: try bytes[0..<bytes.count - page / 2].write(to: file)
            case .swapped:
                try
                    (bytes[0..<(pages - 6) * page] + part(pages - 3) + part(pages - 5) + part(pages - 4) + part(pages - 6)
                    + bytes[(pages - 2) * page..<bytes.count]).write(to: file)
            }
        }
    }

    @Test("however a file was spoilt, it is told, and neither recovered nor sent for ever (I11, I15, I16)", arguments: Mishap.allCases)
    func mishapsHaveAnEnd(mishap: Mishap) async throws {
        let (_, ids) = try makeFile(600)
        try mishap.happen(to: URL(filePath: path))
        let test = try TestClient(directory: directory)
        let sent = await drain(test)
        #expect(test.transport.batches.count < 80 && Set(sent).isSubset(of: ids))
        #expect(await test.client.status().damage?.isRecovered == true)
        #expect(test.transport.batches.flatMap(\.names).filter { $0 == "$QueueDamaged" }.count == 1)
        #expect(test.client.file.counters.waiting == 0)
        await test.client.shutdown(within: .zero)
    }

    @Test("a file that is damaged before it has recovered another's events goes on with both (I1, I11)")
    func secondDamageLosesNothing() throws {
        let queue = try QueueFile.open(directory.path("queue"))
        let events = (1...52).map { PreparedEvent.sample($0, fill: 10) }
        try queue.append(events[..<50])
        for event in events[50...] {
            var isDamaged = true
            try queue.reading { _ in
                defer { isDamaged = false }
                if isDamaged { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            }
            try queue.append([event])
        }
        try queue.inChunks {
            try queue.recoverChunk(now: 0) { name, id, _ in PreparedEvent(id: id, time: 0, bytes: Array("{\"event\":\"\(name)\"}".utf8)) }
        }
        let waiting = try queue.nextBatch(.oldest(limit: 100), maximumBytes: .max, now: 0).events.map(\.id)
        #expect(try Set(waiting).isSuperset(of: events.map(\.id)) && queue.directory.filesSetAside().count == 2)
        queue.close()
    }

    @Test(
        "a damaged file goes with all that lay beside it, once it is recovered or purged, unless it is to be kept (C13, I11)",
        arguments: [true, false])
    func recoveredFileGoes(isPurged: Bool) async throws {
        for isKept in [true, false] {
            let test = try TestClient { $0.queue.keepsDamagedFiles = isKept }
            try await test.track(0..<3)
            var isDamaged = true
            try test.client.file.reading { _ in
                defer { isDamaged = false }
                if isDamaged { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            }
            let queue = test.client.file.directory
            #expect(try queue.filesSetAside().count == 1)
            if isPurged { try await test.client.purge() } else { #expect(await test.client.flush().stored == 4) }
            let names = try FileManager.default.contentsOfDirectory(atPath: queue.path)
            #expect(names.contains { $0.contains("damaged") } == isKept && !test.client.file.isRecovering)
            await test.client.shutdown(within: .zero)
        }
    }

    @Test("an answer about events of a file that was set aside meanwhile changes nothing in the one that took over (I1, I11)")
    func lateAnswerChangesNothing() throws {
        let queue = try QueueFile.open(directory.path("queue"))
        try queue.append((1...50).map { PreparedEvent.sample($0, fill: 10) })
        let batch = try queue.nextBatch(.oldest(limit: 50), maximumBytes: .max, now: 0)
        var isDamaged = true
        try queue.reading { _ in
            defer { isDamaged = false }
            if isDamaged { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        }
        try queue.append([PreparedEvent.sample(51, fill: 10)])
        let settlements = batch.events.map { Settlement(event: $0, fate: .stored) }
        #expect(
            try queue.settle(BatchOutcome(install: batch.install, settlements: settlements, report: batch.report), now: 0).settled.isEmpty)
        try queue.hold(1, of: batch.install)
        #expect(
            try queue.counters.waiting == 1 && queue.counters.held == 0 && queue.counters.isBalanced
                && queue.directory.filesSetAside().count == 1)
        queue.close()
    }

    @Test("an event that ages out while it is sent, with a dead letter put back below it, is no damage (C15)")
    func agedOutIsNoDamage() throws {
        var quota = QueueQuota.unlimited
        quota.maximumAge = .seconds(1)
        let queue = try QueueFile.open(directory.path("queue"), quota: quota)
        try queue.append((1...2).map { PreparedEvent.sample($0, fill: 10) }, now: 1_000)
        let first = try queue.nextBatch(.oldest(limit: 1), maximumBytes: .max, now: 1_000)
        try queue.settle(BatchOutcome(buried: [1: ("rejected", "")]), now: 1_000)
        let batch = try queue.nextBatch(.oldest(limit: 2), maximumBytes: .max, now: 1_000)
        #expect(first.events.map(\.sequence) == [1] && batch.events.map(\.sequence) == [2])
        #expect(try queue.removeDue(now: 60_000) && queue.retryDeadLetters(nil).retried == first.events.map(\.id))
        let outcome = BatchOutcome(install: batch.install, settlements: batch.events.map { Settlement(event: $0, fate: .stored) })
        #expect(try queue.settle(outcome, now: 60_000).settled.isEmpty && queue.directory.filesSetAside().isEmpty)
        #expect(queue.counters.waiting == 1 && queue.counters.removed == 1 && queue.counters.isBalanced)
        queue.close()
    }

    @Test("what was recovered and what is lost is the old install's last word, each of its sequences once (I12)")
    func lastWordIsWhole() async throws {
        let (install, _) = try makeFile(400)
        let pages = try #require(DamagedPage.pages(of: path))
        for page in stride(from: pages / 2, to: pages / 2 + 3, by: 1) { try DamagedPage.make(in: path, page: page) }
        let test = try TestClient(directory: directory)
        _ = await drain(test)
        let damage = try #require(await test.client.status().damage)
        let said = test.transport.batches.map(\.scanned.envelope).filter { $0.installID == install }.flatMap(\.removed)
        var fates: [Int64: String] = [:]
        for gone in said { for sequence in gone.sequences { fates[sequence] = gone.reason } }
        #expect(fates.count == 400 && fates.values.count { $0 == "recovered" } == damage.recovered)
        #expect(damage.lost == 400 - damage.recovered && damage.recovered > 200)
        await test.client.shutdown(within: .zero)
    }

    @Test("the client goes on at once: what it tracks and delivers meanwhile is the new install's, and nothing waits for the recovery")
    func clientGoesOnAtOnce() async throws {
        let test = try TestClient(directory: directory)
        let ids = try await test.track(0..<2_500)
        let before = test.client.file.counters.installID
        var isDamaged = true
        try test.client.file.reading { _ in
            defer { isDamaged = false }
            if isDamaged { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
        }
        #expect(test.client.file.counters.installID != before && test.client.file.isRecovering)
        let later = try await test.client.trackDurably("later")
        #expect(await test.client.flush().stored == 2_502)
        let sent = test.transport.batches.flatMap(\.ids)
        #expect(sent.first == later || sent.contains(later))
        #expect(Set(sent).isSuperset(of: ids) && Set(sent).count == sent.count)
        #expect(await test.client.status().damage?.recovered == 2_500)
        await test.client.shutdown(within: .zero)
    }

    @Test("a recovery that a kill cuts off goes on at its place, and takes nothing twice", arguments: [1, 2])
    func recoveryGoesOn(chunks: Int) async throws {
        let (_, ids) = try makeFile(2_500)
        try DamagedPage.make(in: path, page: 0, bytes: 16)
        let file = try QueueFile(try FileClaim(1, in: QueueDirectory(path: directory.path("queue"))), durability: .process)
        let notice = PreparedEvent.sample(9_999, fill: 10)
        for _ in 0..<chunks { _ = try file.recoverChunk(now: 0) { _, _, _ in notice } }
        let recovered = file.counters.waiting
        file.close()
        let test = try TestClient(directory: directory)
        #expect(test.client.file.counters.waiting == recovered)
        let sent = await drain(test).filter { $0 != notice.id }
        #expect(Set(sent).isSubset(of: ids) && Set(sent).count == sent.count)
        await test.client.shutdown(within: .zero)
    }

    @Test("dead letters are recovered as well, with new numbers; a row whose bytes changed is one, alone (I3)")
    func lettersAndRows() async throws {
        let first = try TestClient(directory: directory)
        for _ in 0..<3 { first.client.track("") }
        let ids = try await first.track(0..<3)
        try await first.client.file.database.write {
            try $0.execute(sql: "UPDATE events SET payload = CAST('{\"other\":1}' AS BLOB) WHERE sequence = 5")
        }
        var isDamaged = true
        try first.client.file.reading { _ in
            defer { isDamaged = false }
            if isDamaged { throw DatabaseError(resultCode: .SQLITE_NOTADB) }
        }
        let report = await first.client.flush()
        #expect(report.stored == 3, "two events and what tells of the damage")
        let deadLetters = try await first.client.deadLetters.list()
        #expect(deadLetters.map(\.reason) == ["invalid_event", "invalid_event", "invalid_event"])
        #expect(await first.client.status().damage?.lost == 1, "a row that is not what was stored is not recovered")
        #expect(first.transport.batches.flatMap(\.ids).contains(ids[0]))
        let second = try TestClient()
        try await second.track(0..<3)
        try await second.client.file.database.write {
            try $0.execute(sql: "UPDATE events SET payload = CAST('{\"other\":1}' AS BLOB) WHERE sequence = 2")
        }
        let mended = await second.client.flush()
        #expect(try mended.stored == 2 && mended.deadLettered == 1 && second.client.file.directory.filesSetAside().isEmpty)
        #expect(try await second.client.deadLetters.list().map(\.reason) == ["damaged"])
        for test in [first, second] { await test.client.shutdown(within: .zero) }
    }

    @Test("a file that is damaged while nobody owns it is set aside by who finds it, recovered and sent; nobody is held up (I11)")
    func leftoverIsRecovered() async throws {
        let holder = try TestClient(directory: directory)
        let other = try TestClient(directory: directory)
        let ids = try await other.track(0..<20)
        await other.client.shutdown(within: .zero)
        try DamagedPage.make(in: directory.path("queue/2.sqlite"), page: 0, bytes: 16)
        #expect(await holder.client.leftovers.send(isManual: true).failure == nil)
        #expect(try holder.client.file.directory.filesSetAside() == ["2.sqlite.damaged-1"])
        #expect(holder.transport.batches.flatMap(\.names).contains("$QueueDamaged"))
        #expect(Set(holder.transport.batches.flatMap(\.ids)).isDisjoint(with: ids), "nothing of such a file can be read")
        try await holder.track(20..<21)
        #expect(await holder.client.flush().stored == 1)
        await holder.client.shutdown(within: .zero)
    }
}
