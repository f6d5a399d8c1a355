import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// On a disk that takes nothing for a while, or hangs.
extension ShutdownTests {
    @Test("what cannot be stored at once is tried again as long as there is time, and then sent (I1, R38)")
    func storingIsTriedAgain() async throws {
        let test = try TestClient()
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
        #expect(await report == ShutdownReport(stored: 0, lost: 0))
        #expect(test.transport.batches.map(\.names) == [["kept"]])
    }

    @Test("what is stored is not lost as well, though what shows it to the developer takes its time; its outcome is told (I12, R59)")
    func slowObserverLosesNothing() async throws {
        let gate = Gate()
        let test = try TestClient {
            $0.debug.isOn = true
            $0.debug.output = { _ in gate.blockUntilOpen() }
        }
        let deliveries = test.client.deliveries()
        // Breaks a limit: a dead letter, which is told behind the output.
        let id = test.client.track(String(repeating: "n", count: 10_000))
        await gate.waitForArrivals(1)
        async let report = test.client.shutdown(within: .zero)
        await test.clock.scheduled(3)
        test.clock.advance(by: .milliseconds(500))
        while (try? test.client.file.database) != nil { await Task.yield() }
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
            $0.debug.isOn = true
            $0.debug.output = { _ in gate.blockUntilOpen() }
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
                Task { [queue = test.client.file] in
                    try await blocking { try queue.database.writeWithoutTransaction { _ in hangs.blockUntilOpen() } }
                })
            await hangs.waitForArrivals(index + 1)
        }
        let uploads = tests.map { test in Task { await test.client.delivery.drain().state.counts.stored } }
        for _ in 0..<1_000 { await Task.detached {}.value }
        #expect(tests.allSatisfy { $0.transport.batches.isEmpty })
        for test in tests { #expect(await test.client.status().depth == 1, "nor does one wait who asks how it stands") }
        hangs.open()
        for disk in disks { try await disk.value }
        for upload in uploads { #expect(await upload.value == 1) }
        for test in tests { await test.client.shutdown(within: .zero) }
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
