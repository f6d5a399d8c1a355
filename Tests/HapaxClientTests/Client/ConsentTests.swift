import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Consent", .endsWhenItHangs)
struct ConsentTests {
    @Test("while consent is pending events are stored and nothing is sent, which whoever asks is told; granted, all of it is sent")
    func pendingIsStored() async throws {
        let first = try TestClient { $0.consent = .pending }
        #expect(first.client.consent == .pending)
        #expect(await first.client.flush().failure == nil, "nothing waits")
        try await first.track(1...3)
        let report = await first.client.flush()
        #expect(report.failure == .consentPending && report.remaining == 3)
        #expect(await first.client.status().failure == .consentPending)
        #expect(await first.client.flushNextBatch() == .failed(.consentPending))
        #expect(await first.client.shutdown(within: .seconds(1)).failure == .consentPending)
        #expect(first.transport.batches.isEmpty)
        // The configuration is asked once: what the directory says holds, whoever comes.
        let second = try TestClient(directory: first.directory)
        #expect(second.client.consent == .pending)
        try second.client.setConsent(.granted)
        try await second.track(4...4)
        #expect(await second.client.flush().stored == 4)
        #expect(second.transport.batches.flatMap(\.names) == (1...4).map { "event \($0)" })
        await second.client.shutdown(within: .zero)
    }

    @Test(
        "denied, what was taken while it was pending is deleted, dead letters included, and what was taken before is sent; books balance (I12)"
    )
    func denialDeletesWhatWaited() async throws {
        let test = try TestClient()
        try await test.track(1...2)
        try test.client.setConsent(.pending)
        try await test.track(3...5)
        test.client.track("")
        try await test.client.writer.barrier()
        try test.client.setConsent(.denied)
        #expect(test.client.track("refused") == nil)
        #expect(await test.client.flush().stored == 2)
        let status = await test.client.status()
        #expect(status.depth == 0 && status.created == 2 && status.dropped == ["purged": 3, "opted_out": 1] && status.isBalanced)
        #expect(try test.client.file.deadLetters(after: 0, limit: 1).isEmpty)
        _ = await test.client.flush()
        try test.client.setConsent(.granted)
        _ = await test.client.flush()
        try await test.track(6...6)
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.map(\.names) == [["event 1", "event 2"], ["event 6"]])
        // Numbers alone would say that there was something.
        let envelopes = test.transport.batches.map(\.scanned.envelope)
        #expect(envelopes.map(\.created) == [2, 3] && envelopes.allSatisfy { $0.removed.isEmpty && $0.refused.isEmpty })
        #expect(test.transport.batches.map(\.sequences) == [[1, 2], [3]])
        await test.client.shutdown(within: .zero)
    }

    @Test("what waits in memory while another process denies, and grants again, is refused and never stored; who waits for it is told")
    func denialReachesTheMailbox() async throws {
        let test = try TestClient { $0.consent = .pending }
        let writer = try await test.holdWriter()
        for _ in 0..<500 { test.client.track("pending") }
        let durable = Task { try await test.client.trackDurably("pending, too") }
        while test.client.writer.intake.withLock({ $0.uncommitted.events }) < 501 { await Task.yield() }
        for consent in [Consent.denied, .granted] { try test.client.file.directory.setConsent(consent) }
        writer.signal()
        await #expect(throws: TrackError.refused(.optedOut)) { try await durable.value }
        try await test.track(1...1)
        #expect(await test.client.flush().stored == 1)
        let status = await test.client.status()
        #expect(status.created == 1 && status.dropped == ["opted_out": 501] && status.isBalanced)
        #expect(test.transport.batches.map(\.names) == [["event 1"]])
        await test.client.shutdown(within: .zero)
    }

    @Test("an answer is about what waited for it: what had been granted is sent, whatever is said later and whoever looks when")
    func firstAnswerCounts() async throws {
        let test = try TestClient { $0.consent = .pending }
        try await test.track(1...2)
        let writer = try await test.holdWriter()
        test.client.track("event 3")
        try test.client.setConsent(.granted)
        test.client.track("event 4")
        try test.client.setConsent(.pending)
        test.client.track("event 5")
        try test.client.setConsent(.denied)
        writer.signal()
        try await test.client.writer.barrier()
        #expect(await test.client.flush().stored == 4)
        #expect(test.transport.batches.flatMap(\.names) == (1...4).map { "event \($0)" })
        #expect(await test.client.status().dropped == ["opted_out": 1])
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "a client that was idle while another process asked or was denied takes its next event as behind that",
        arguments: [Consent.pending, .denied])
    func idleClientFollows(consent: Consent) async throws {
        let test = try TestClient()
        try await test.track(1...1)
        try test.client.file.directory.setConsent(consent)
        test.client.track("late")
        try? await test.client.writer.barrier()
        #expect(test.client.consent == consent)
        try test.client.file.directory.setConsent(.denied)
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.map(\.names) == [["event 1"]])
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "a user who has denied and agrees later is told of anew: `$identify` comes again, and no end of a session whose start was deleted")
    func denialForgets() async throws {
        let test = try TestClient { $0.consent = .pending }
        test.client.handle(.didBecomeActive)
        test.client.identify("anna")
        try await test.client.writer.barrier()
        for consent in [Consent.denied, .granted] { try test.client.setConsent(consent) }
        test.client.identify("anna")
        test.client.handle(.didEnterBackground)
        test.client.handle(.didBecomeActive)
        _ = await test.client.flush()
        // A grant while the app is shown begins a session (R44).
        #expect(test.transport.batches.flatMap(\.names) == ["$AppStart", "$identify", "$AppEnd", "$AppStart"])
        await test.client.shutdown(within: .zero)
    }

    @Test(
        "of a damaged file what waited for consent waits on, and a denial deletes that and nothing else, whether the file still says what waited or not",
        arguments: [true, false], [Consent.granted, .denied])
    func damageIsNoConsent(isReadable: Bool, answer: Consent) async throws {
        let first = try TestClient()
        try await first.track(1...2)
        try first.client.setConsent(.pending)
        try await first.track(3...4)
        await first.client.shutdown(within: .zero)
        let path = first.client.file.directory.databasePath(1)
        let database = try DatabaseQueue(path: path)
        try await database.write { try $0.execute(sql: isReadable ? "DROP TABLE recoveries" : "UPDATE counters SET waiting = waiting + 1") }
        try database.close()
        let second = try TestClient(directory: first.directory)
        try await second.track(5...5)
        #expect(await second.client.flush().failure == .consentPending)
        try second.client.setConsent(answer)
        try second.client.setConsent(.granted)
        while second.client.file.isRecovering { _ = await second.client.flush() }
        _ = await second.client.flush()
        let names = Set(second.transport.batches.flatMap(\.names))
        let waited: Set = answer == .granted ? ["event 3", "event 4", "event 5"] : []
        #expect(names == waited.union(["event 1", "event 2", "$QueueDamaged"]))
        #expect(await second.client.status().isBalanced)
        await second.client.shutdown(within: .zero)
    }

    /// What a kill would have left after each of a file's commits, and after what was done between them.
    private final class Kills: TransactionObserver {
        private let (queue, copies) = (Locked(""), TemporaryDirectory())
        private let count = Locked(0)

        init(_ queue: String) { self.queue.withLock { $0 = queue } }

        func observes(eventsOfKind eventKind: DatabaseEventKind) -> Bool { true }
        func databaseDidChange(with event: DatabaseEvent) {}
        func databaseDidCommit(_ db: Database) { kill() }
        func databaseDidRollback(_ db: Database) {}

        func kill() {
            let number = count.withLock {
                $0 += 1; return $0
            }
            do {
                try FileManager.default.copyItem(atPath: queue.withLock { $0 }, toPath: copies.path("\(number)/queue"))
            } catch { Issue.record(error) }
        }

        var all: [String] { (1...count.withLock { $0 }).map { copies.path("\($0)") } }
    }

    @Test(
        "whoever is killed, at whatever moment: of what was taken while consent was pending not a byte is sent once it has been denied, not even if it is granted later; without a denial it is",
        arguments: [false, true])
    func killsSendNothing(isDenied: Bool) async throws {
        // The second file is another process's for whoever comes later.
        let first = try TestClient { $0.consent = .pending }
        let second = try TestClient(directory: first.directory)
        let queue = first.directory.path("queue")
        let kills = Kills(queue)
        for test in [first, second] {
            try await test.client.file.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA wal_autocheckpoint = 0") }
            try await test.track(1...1_500)
        }
        try second.client.file.database.add(transactionObserver: kills)
        try first.client.file.database.add(transactionObserver: kills)
        kills.kill()
        if isDenied { try QueueDirectory(path: queue).setConsent(.denied) }
        kills.kill()
        // Each purges with its next commit, the second one also by a request that it wants to make.
        _ = second.client.track("late")
        try await second.client.writer.barrier()
        _ = await first.client.flush()
        kills.kill()
        for test in [first, second] { _ = await test.client.shutdown(within: .zero) }
        #expect(first.transport.batches.isEmpty && second.transport.batches.isEmpty)
        for (number, copy) in kills.all.enumerated() {
            for consent in [Consent?.none, .granted] {
                let place = TemporaryDirectory()
                try FileManager.default.copyItem(atPath: copy + "/queue", toPath: place.path("queue"))
                if isDenied, let consent {
                    try QueueDirectory(path: place.path("queue")).setConsent(.denied)
                    try QueueDirectory(path: place.path("queue")).setConsent(consent)
                } else if let consent {
                    try QueueDirectory(path: place.path("queue")).setConsent(consent)
                }
                let later = try TestClient(directory: place)
                _ = await later.client.parts.finalFlush(within: .seconds(60))
                let names = later.transport.batches.flatMap(\.names).count
                let isSent = !isDenied && consent == .granted
                #expect(isSent ? names >= 3_000 : names == 0, "kill \(number), then \(consent as Any)")
                await later.client.shutdown(within: .zero)
            }
        }
    }

    @Test(
        "an idle process takes nothing for agreed to that it was told while somebody asks anew, whatever was agreed to before",
        arguments: [Consent.pending, .granted])
    func idleProcessTakesNothingForGranted(first: Consent) async throws {
        let other = try TestClient { $0.consent = first }
        let idle = try TestClient(directory: other.directory)
        if first == .granted { try other.client.setConsent(.pending) }
        try other.client.setConsent(.granted)
        try other.client.setConsent(.pending)
        try await idle.track(1...1)
        try other.client.setConsent(.denied)
        _ = await idle.client.flush()
        #expect(idle.transport.batches.isEmpty)
        for test in [other, idle] { await test.client.shutdown(within: .zero) }
    }

    @Test(
        "after a file of consent that nobody can read, what is taken while it is pending waits, and with a denial before it goes",
        arguments: [false, true])
    func unreadableFileIsNoConsent(wasDenied: Bool) async throws {
        let first = try TestClient { $0.consent = .pending }
        let queue = first.client.file.directory
        if wasDenied { try await first.track(1...2) }
        await first.client.shutdown(within: .zero)
        if wasDenied { try queue.setConsent(.denied) }
        try Data("noise".utf8).write(to: URL(filePath: queue.consentPath))
        try queue.setConsent(.pending)
        let later = try TestClient(directory: first.directory)
        if !wasDenied {
            for number in 1...2 { try await later.track(number...number) }
            try later.client.setConsent(.denied)
            _ = await later.client.flush()
        }
        try later.client.setConsent(.granted)
        _ = await later.client.flush()
        #expect(later.transport.batches.isEmpty)
        await later.client.shutdown(within: .zero)
    }

    @Test(
        "a file that nobody can read is the reason why a client does not start, is said once and looked at again; what is said anew holds (C2)",
        arguments: ["consent", "identity.json"])
    func unreadableFileIsSaid(name: String) async throws {
        let (directory, log, clock) = (TemporaryDirectory(), RecordedLog(), TestClock())
        let path = directory.path("queue/" + name)
        try QueueDirectory(path: directory.path("queue")).make()
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: path)
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "test-key", queueDirectory: directory.path("queue"))
        configuration.logger = Logger(label: "test") { _ in log }
        let client = EventClient(configuration, clock: clock) { configuration, hub, timers in
            do throws(StartError) {
                return .success(try OpenClient.open(configuration, clock: clock, hub: hub, timers: timers) { ScriptedTransport() })
            } catch { return .failure(error) }
        }
        #expect(client.startFailure?.description.contains("the file \(name) of the queue's directory cannot be read") == true)
        #expect(client.track("refused") == nil)
        await #expect(throws: TrackError.refused(.unreadable)) { try await client.trackDurably("refused") }
        clock.advance(by: .seconds(1))
        #expect(await client.status().dropped == ["unreadable": 2])
        if name == "consent" {
            #expect(throws: ConsentError.self) { try client.setConsent(.granted) }
        } else {
            try FileManager.default.removeItem(atPath: path)
        }
        await clock.advance(by: .seconds(60)) { client.startFailure == nil }
        #expect(client.track("taken") != nil && client.consent == .granted)
        // The file counts what was refused before it was open, with the next commit.
        try await client.open?.waitUntilStored()
        #expect(await client.status().dropped == ["unreadable": 2])
        #expect(log.lines.filter { $0.hasPrefix("error") }.count == 1)
        await client.shutdown(within: .zero)
    }

    @Test("a disk that hangs keeps nobody who asks how the client stands (C7)")
    func statusLooksAtNoDisk() async throws {
        let test = try TestClient { $0.consent = .pending }
        try await test.track(1...1)
        let path = test.client.file.directory.consentPath
        try FileManager.default.removeItem(atPath: path)
        // Who opens it to read waits for somebody who writes.
        try #require(mkfifo(path, 0o600) == 0)
        let status = Locked<EventClient.Status?>(nil)
        Task { [client = test.client] in
            let now = await client.status()
            status.withLock { $0 = now }
        }
        while status.withLock({ $0 }) == nil {
            await Task.yield()
            // There is a reader: it goes on, and is seen.
            let writer = open(path, O_WRONLY | O_NONBLOCK)
            if writer >= 0 { Issue.record("the status has looked at the disk") }
            close(writer)
        }
        #expect(status.withLock { $0?.failure } == .consentPending)
        unlink(path)
        await test.client.shutdown(within: .zero)
    }

    @Test("where somebody has deleted the file, what waited is told of, and goes with the next consent")
    func deletedFileHoldsNothingUp() async throws {
        let first = try TestClient { $0.consent = .pending }
        try await first.track(1...2)
        await first.client.shutdown(within: .zero)
        try FileManager.default.removeItem(atPath: first.client.file.directory.consentPath)
        let later = try TestClient(directory: first.directory)
        try await later.track(3...4)
        #expect(await later.client.flush().failure == .consentPending)
        try later.client.setConsent(.granted)
        #expect(await later.client.flush().stored == 4)
        await later.client.shutdown(within: .zero)
    }

    @Test("what is asked, tracked and denied between a step's look at the consent and its reading is in no envelope (I12)")
    func envelopeCountsNothingDenied() async throws {
        let (clock, transport, directory) = (HookClock(), ScriptedTransport(), TemporaryDirectory())
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:1", writeKey: "test-key", queueDirectory: directory.path("queue"))
        configuration.uploads.interval = nil
        let client = try EventClient.start(configuration, clock: clock) { transport }
        for number in 1...3 { client.track("event \(number)") }
        try await client.writer.barrier()
        clock.hook.withLock {
            $0 = {
                try? client.setConsent(.pending)
                for number in 0..<100 { client.track("pending \(number)") }
                let stored = DispatchSemaphore(value: 0)
                client.writer.whenStored { stored.signal() }
                stored.wait()
                try? client.setConsent(.denied)
            }
        }
        _ = await client.delivery.step(client.file, isManual: true)
        _ = await client.flush()
        try client.setConsent(.granted)
        client.track("event 4")
        try await client.writer.barrier()
        _ = await client.flush()
        #expect(transport.batches.map(\.scanned.envelope.created) == [3, 4])
        await client.shutdown(within: .zero)
    }

    @Test("what is recovered from a damaged file while somebody asks and denies is what was granted, all of it (I11)")
    func recoveryLosesNothingGranted() async throws {
        let first = try TestClient { $0.queue.mailboxCapacity = 10_000 }
        let fill = String(repeating: "x", count: 500)
        for number in 0..<5_000 { first.client.track("event \(number)", properties: ["fill": fill]) }
        try await first.client.writer.barrier()
        await first.client.shutdown(within: .zero)
        let database = try DatabaseQueue(path: first.client.file.directory.databasePath(1))
        try await database.write { try $0.execute(sql: "DROP TABLE recoveries") }
        try database.close()
        let second = try TestClient(directory: first.directory)
        async let flushing: Void = {
            while second.client.file.isRecovering { _ = await second.client.flush() }
        }()
        while second.client.file.isRecovering {
            try second.client.setConsent(.pending)
            second.client.track("pending")
            try await second.client.writer.barrier()
            try second.client.setConsent(.denied)
            _ = await second.client.flush()
        }
        await flushing
        try second.client.setConsent(.granted)
        while await second.client.flush().stored > 0 {}
        let sent = second.transport.batches.flatMap(\.names)
        #expect(Set(sent).subtracting(["$QueueDamaged"]).count == 5_000 && !sent.contains("pending"))
        await second.client.shutdown(within: .zero)
    }
}

/// Does something once, at the next look at the wall clock.
private final class HookClock: ClientClock {
    let hook = Locked<(@Sendable () -> Void)?>(nil)
    private let base = TestClock()

    var unixMilliseconds: Int64 {
        hook.withLock { hook in
            defer { hook = nil }
            return hook
        }?()
        return base.unixMilliseconds
    }
    var monotonic: Duration { base.monotonic }
    var reading: ClockReading { base.reading }

    func schedule(after delay: Duration, _ action: @escaping @Sendable () -> Void) -> any ScheduledAction {
        base.schedule(after: delay, action)
    }
}
