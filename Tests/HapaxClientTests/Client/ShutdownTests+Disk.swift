import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// On a disk that takes nothing for a while, or hangs.
extension ShutdownTests {
    @Test("what lies in a file that was set aside is not lost, though no other could be begun (I1, I11)")
    func fileSetAsideIsNotLost() async throws {
        let directory = TemporaryDirectory()
        let disk = FaultyDisk(directory.path)
        let test = try TestClient(directory: directory)
        let ids = try await test.track(1...200)
        try DamagedPage.make(in: test.client.queue, at: ids[0])
        disk.fail(FaultyDisk.Fault(at: 0, count: .max / 2, code: ResultCode.SQLITE_CANTOPEN.rawValue, operations: [.open]))
        #expect(await test.client.flush().failure != nil)
        #expect(test.client.queue.directory.filesSetAside.count == 1 && disk.failures > 0)
        let report = await test.client.shutdown(within: .zero)
        #expect(report.stored == 0 && report.lost == 0 && report.mayLeaveMore)
        disk.fail(nil)
        let next = try TestClient(directory: directory)
        #expect(await next.client.flush().stored > 100)
        await next.client.shutdown(within: .zero)
    }

    @Test(
        "what cannot be stored at once is tried again as long as there is time, and then sent, also if spools cannot be (I1, R38)",
        arguments: [true, false])
    func storingIsTriedAgain(areSpoolsReadable: Bool) async throws {
        let test = try TestClient()
        if !areSpoolsReadable { try Data().write(to: URL(fileURLWithPath: test.client.queue.directory.spoolPath)) }
        try test.refuseCommits(true)
        test.client.track("kept")
        await test.clock.scheduled(1)
        async let report = test.client.shutdown(within: .seconds(10))
        // The next attempt, and the limits for uploading, storing and leaving.
        await test.clock.scheduled(4)
        let waiter = await test.waiter()
        test.clock.advance(by: .seconds(1))
        await test.clock.scheduled(4)
        _ = await test.waiter(otherThan: waiter)
        try test.refuseCommits(false)
        test.clock.advance(by: .seconds(2))
        let failure = areSpoolsReadable ? nil : DeliveryFailure.queue(StorageFailure(errno: ENOTDIR))
        #expect(await report == ShutdownReport(stored: 0, lost: 0, failure: failure, mayLeaveMore: !areSpoolsReadable))
        #expect(test.transport.batches.map(\.names) == [["kept"]])
    }

    @Test("what is stored is not lost as well, though what shows it to the developer takes its time; its outcome is told (I12, R59)")
    func slowObserverLosesNothing() async throws {
        let gate = Gate()
        let test = try TestClient {
            $0.debugMode = true
            $0.debugOutput = { _ in gate.blockUntilOpen() }
        }
        let deliveries = test.client.deliveries()
        // Breaks a limit: a dead letter, which is told behind the output.
        let id = test.client.track(String(repeating: "n", count: 10_000))
        await gate.waitForArrivals(1)
        async let report = test.client.shutdown(within: .zero)
        await test.clock.scheduled(3)
        test.clock.advance(by: .milliseconds(500))
        while test.client.queue.connection.withLock({ $0 }) != nil { await Task.yield() }
        gate.open()
        let left = await report
        #expect(left.stored == 0 && left.lost == 0, "\(left)")
        var told: [EventID] = []
        for await delivery in deliveries { if case .rejected(let id, _, _) = delivery { told.append(id) } }
        #expect(told == [id])
    }

    @Test("the books say what was stored if nothing behind the commit ever ends (I12, D7)")
    func hungObserverLosesNothing() async throws {
        let gate = Gate()
        let test = try TestClient {
            $0.debugMode = true
            $0.debugOutput = { _ in gate.blockUntilOpen() }
        }
        test.client.track("stored")
        await gate.waitForArrivals(1)
        async let report = test.client.shutdown(within: .zero)
        await test.clock.scheduled(3)
        test.clock.advance(by: .milliseconds(600))
        let left = await report
        #expect(left.stored == 1 && left.lost == 0, "\(left)")
        gate.open()
    }

    @Test("a second shutdown looks for nothing that another client may have delivered since (I12)")
    func secondShutdownSaysTheSame() async throws {
        let directory = TemporaryDirectory()
        let main = try TestClient(directory: directory)
        let spool = try TestClient(directory: directory) { $0.whenQueueIsTaken = .spool }
        try await spool.track(0..<5)
        let first = await spool.client.shutdown(within: .zero)
        #expect(first.stored == 5 && first.lost == 0)
        #expect(await main.client.flush().stored == 5)
        #expect(!FileManager.default.fileExists(atPath: spool.client.queue.directory.path), "control")
        let second = await spool.client.shutdown(within: .zero)
        #expect(second.stored == 5 && second.lost == 0, "\(second)")
        await main.client.shutdown(within: .zero)
    }

    @Test("a server that refuses for a reason which time does not change is asked once, though storing is tried again (I16)")
    func refusedKeyIsNotAskedAgain() async throws {
        let test = try TestClient()
        test.transport.script { _ in .success(.problem(.unknownKey)) }
        try await test.track(0..<1)
        try test.refuseCommits(true)
        test.client.track("in memory")
        await test.clock.scheduled(1)
        async let report = test.client.shutdown(within: .seconds(10))
        var waiter: CommitWaiter?
        for _ in 0..<3 {
            // The next attempt, and the limits for uploading, storing and leaving.
            await test.clock.scheduled(4)
            waiter = await test.waiter(otherThan: waiter)
            test.clock.advance(by: .seconds(2))
        }
        _ = await test.waiter(otherThan: waiter)
        test.clock.advance(by: .seconds(10))
        let left = await report
        #expect(left.stored == 1 && left.lost == 1 && test.transport.batches.count == 1)
    }

    @Test("a disk that hangs stops no task but the client's own (D7)")
    func hangingDiskStopsNobodyElse() async throws {
        let hangs = Gate()
        // One more than the language has threads.
        let tests = try (0...ProcessInfo.processInfo.activeProcessorCount).map { _ in try TestClient() }
        var disks: [Task<Void, any Error>] = []
        for (index, test) in tests.enumerated() {
            try await test.track(0..<1)
            disks.append(
                Task { [queue = test.client.queue] in
                    try await blocking { try queue.database.writeWithoutTransaction { _ in hangs.blockUntilOpen() } }
                })
            await hangs.waitForArrivals(index + 1)
        }
        let uploads = tests.map { test in Task { await test.client.delivery.drain().counts.stored } }
        for _ in 0..<1_000 { await Task.detached {}.value }
        #expect(tests.allSatisfy { $0.transport.batches.isEmpty })
        for test in tests { #expect(await test.client.status().depth == 1, "nor does one wait who asks how it stands") }
        hangs.open()
        for disk in disks { try await disk.value }
        for upload in uploads { #expect(await upload.value == 1) }
        for test in tests { await test.client.shutdown(within: .zero) }
    }

    @Test(
        "a disk that hangs when the file is looked for holds nobody up; what was stored is believed to be (D7, R38)",
        arguments: [true, false])
    func hangingDiskIsLeft(isAllStored: Bool) async throws {
        let test = try TestClient()
        test.transport.script { [transport = test.transport] _ in await transport.hang() }
        try await test.track(0..<3)
        let hangs = Gate()
        // Whoever looks needs this lock, and whoever stores.
        let disk = Task { [queue = test.client.queue] in
            try await blocking { queue.file.withLock { _ in hangs.blockUntilOpen() } }
        }
        await hangs.waitForArrivals(1)
        if !isAllStored { test.client.track("late") }
        async let report = test.client.shutdown(within: .seconds(2))
        if isAllStored { await test.transport.requests(1) } else { await test.clock.scheduled(3) }
        test.clock.advance(by: .milliseconds(2_100))
        let left = await report
        #expect(left.stored == 3 && left.lost == (isAllStored ? 0 : 1) && left.mayLeaveMore)
        hangs.open()
        try await disk.value
    }
}

extension TestClient {
    /// Who waits for the next attempt to store, once somebody does.
    fileprivate func waiter(otherThan former: CommitWaiter? = nil) async -> CommitWaiter {
        while true {
            let first = client.writer.intake.withLock { $0.mailbox.first?.waiter }
            if let first, first !== former { return first }
            await Task.yield()
        }
    }
}
