import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Events that the server refuses, where those that show whether it accepts anything wait in another queue.
@Suite("Poison events in several queues (I1, I8, I15, D13)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct SpooledPoisonTests {
    private let directory = TemporaryDirectory()
    private let abandoned = Locked(0)

    private func main() throws -> TestClient {
        let test = try TestClient(directory: directory)
        test.transport.script { $0.names.contains("poison") ? .success(.problem(.malformed)) : .success($0.receipt()) }
        return test
    }

    private var spools: [QueueDirectory] { (try? QueueDirectory(path: directory.path + "/queue").spools()) ?? [] }

    /// Each later than the one before: the oldest is delivered first.
    ///
    /// - Returns: The install it was.
    @discardableResult
    private func abandonSpool(_ names: [String]) async throws -> EventID {
        let clock = ManualClock()
        clock.moveWallClock(
            by: .seconds(
                abandoned.withLock { count in
                    count += 1
                    return count
                }))
        let spool = try TestClient(directory: directory, clock: clock) { $0.whenQueueIsTaken = .spool }
        for name in names { spool.client.track(name) }
        try await spool.client.waitUntilStored()
        await spool.client.shutdown(within: .zero)
        return spool.client.queue.installID
    }

    @Test("a spool with nothing else holds no other up, and what the server accepts of those convicts the event")
    func othersAreDelivered() async throws {
        let test = try main()
        let install = try await abandonSpool(["poison"])
        for name in ["good 1", "good 2"] { try await abandonSpool([name]) }
        let report = await test.client.flush()
        #expect(report.stored == 2 && report.deadLettered == 1 && report.failure == nil && spools.isEmpty)
        #expect(try test.client.deadLetters.list().map(\.reason) == ["malformed"])
        #expect(test.transport.batches.map(\.names) == [["poison"], ["good 1"], ["good 2"], ["poison"], ["good 2"]])
        #expect(test.transport.batches.last?.scanned.envelope.installID == install, "a witness differs in nothing but the event")
        await test.client.shutdown(within: .zero)
    }

    @Test("of events of two installs in one queue an accepted one convicts only its own install's (D12, D13)")
    func installsAreJudgedApart() async throws {
        let old = try main()
        try await old.client.trackDurably("poison")
        await old.client.shutdown(within: .zero)
        let file = old.client.queue.directory.databasePath
        try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
        let disk = FaultyDisk(file + ".damaged-1")
        disk.cutOff(at: 0, [.open])
        let test = try main()
        try await test.client.trackDurably("good")
        #expect(await test.client.flush().stored == 1)
        disk.fail(nil)
        let refused = try await test.client.trackDurably("refused")
        let install = test.client.queue.installID
        test.transport.script { batch in
            batch.scanned.envelope.installID == install || batch.names == ["poison"]
                ? .success(.problem(.malformed)) : .success(batch.receipt())
        }
        _ = await test.client.flush()
        let letters = try test.client.deadLetters.list()
        #expect(letters.count == 1 && letters.first?.eventID != refused, "\(test.transport.batches.map(\.names))")
        test.transport.script { .success($0.receipt()) }
        #expect(
            await test.client.flush() == FlushReport(stored: 2, duplicates: 0, deadLettered: 0, remaining: 0), "and what tells of the file")
        await test.client.shutdown(within: .zero)
    }

    @Test("what the main queue has delivered convicts an event of a spool", arguments: [false, true])
    func mainQueueTestifies(isShutdown: Bool) async throws {
        let test = try main()
        try await abandonSpool(["poison"])
        try await test.track(0..<1)
        if isShutdown {
            let report = await test.client.shutdown(within: .seconds(10))
            #expect(report.failure == nil && report.stored == 0)
        } else {
            let report = await test.client.flush()
            #expect(report.stored == 1 && report.deadLettered == 1 && report.failure == nil)
        }
        #expect(spools.isEmpty)
    }

    @Test("alone in the main queue it holds no spool up, and what those deliver convicts it", arguments: [false, true])
    func spoolTestifies(isShutdown: Bool) async throws {
        let test = try main()
        try await abandonSpool(["good"])
        try await test.client.trackDurably("poison")
        if isShutdown {
            let report = await test.client.shutdown(within: .seconds(10))
            #expect(report.failure == nil && report.stored == 0 && !report.mayLeaveMore)
        } else {
            let report = await test.client.flush()
            #expect(report.stored == 1 && report.deadLettered == 1 && report.failure == nil && report.remaining == 0)
            await test.client.shutdown(within: .zero)
        }
        #expect(test.transport.batches.map(\.names) == [["poison"], ["good"], ["poison"], ["good"]])
        #expect(spools.isEmpty)
    }

    @Test("a server that refuses everything costs no event, and is asked once for each queue (I16)", arguments: [false, true])
    func refusingServerCostsNothing(isShutdown: Bool) async throws {
        let test = try main()
        for _ in 0..<3 { try await abandonSpool(["poison"]) }
        try await test.client.trackDurably("poison")
        if isShutdown {
            let report = await test.client.shutdown(within: .seconds(10))
            #expect(report.stored == 1 && report.failure == .status(400, code: "malformed") && report.mayLeaveMore)
        } else {
            let report = await test.client.flush()
            #expect(report.stored == 0 && report.deadLettered == 0 && report.failure == .status(400, code: "malformed"))
            #expect(try test.client.queue.deadLetterCount() == 0)
            await test.client.shutdown(within: .zero)
        }
        #expect(test.transport.batches.count == 4 && spools.count == 3)
    }

    @Test("a server that accepts nothing any more convicts no event, and is not asked for the next spool (D12, I16)")
    func refusedWitnessConvictsNobody() async throws {
        let test = try main()
        for _ in 0..<2 { try await abandonSpool(["poison"]) }
        try await test.track(0..<1)
        test.transport.script { [transport = test.transport] batch in
            .success(transport.batches.count == 1 ? batch.receipt() : .problem(.malformed))
        }
        let report = await test.client.flush()
        #expect(report.stored == 1 && report.deadLettered == 0 && report.failure == .status(400, code: "malformed"))
        #expect(test.transport.batches.map(\.names) == [["event 0"], ["poison"], ["event 0"]])
        #expect(spools.count == 2)
        await test.client.shutdown(within: .zero)
    }

    @Test("where the server refuses an install and not its events, those of other installs convict none (D12)")
    func refusedInstallCostsNothing() async throws {
        let test = try main()
        let install = try await abandonSpool(["good 1"])
        try await abandonSpool(["good 2"])
        test.transport.script {
            $0.scanned.envelope.installID == install ? .success(.problem(.malformed)) : .success($0.receipt())
        }
        let report = await test.client.flush()
        #expect(report.stored == 1 && report.deadLettered == 0 && report.failure == .status(400, code: "malformed"))
        #expect(spools.count == 1)
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 1)
        await test.client.shutdown(within: .zero)
    }

    /// Looks for spools when a test asks for it; the look with which it starts is over.
    private func lookingWhenAsked() async throws -> TestClient {
        let (looks, looked) = (Locked(0), AwaitedCount())
        let test = try TestClient(directory: directory) {
            $0.uploadOnlyInBackground()
            $0.network = {
                let count = looks.withLock { looks in
                    looks += 1
                    return looks
                }
                looked.set(count)
                // Once for what was stored before, once for spools.
                return count > 2 ? .wired : nil
            }
        }
        await looked.reaches(2)
        test.transport.script { $0.names.contains("poison") ? .success(.problem(.malformed)) : .success($0.receipt()) }
        return test
    }

    @Test("one with more of them than a look may try keeps the others waiting for one look only (I15)")
    func nextLookBeginsBehindIt() async throws {
        let test = try await lookingWhenAsked()
        let adopter = try #require(test.client.adopter)
        let poison = [String](repeating: "poison", count: DeliveryStateMachine.maximumSuspects + 4)
        try await abandonSpool(poison)
        try await abandonSpool(["good 1"])
        await adopter.adoptIfDue()
        #expect(test.transport.batches.allSatisfy { !$0.names.contains("good 1") })
        test.clock.advance(by: .seconds(300))
        await adopter.adoptIfDue()
        #expect(test.transport.batches.contains { $0.names == ["good 1"] })
        for _ in 0..<3 {
            test.clock.advance(by: .seconds(300))
            await adopter.adoptIfDue()
        }
        #expect(spools.isEmpty)
        #expect(try test.client.deadLetters.count() == poison.count)
        await test.client.shutdown(within: .zero)
    }

    @Test("a spool with nothing to send shortens no rest that the refusal of another's events began (I16)")
    func emptySpoolShortensNoRest() async throws {
        let test = try await lookingWhenAsked()
        let adopter = try #require(test.client.adopter)
        try await abandonSpool(["poison"])
        try await abandonSpool([""])
        await adopter.adoptIfDue()
        #expect(test.transport.batches.count == 1 && spools.count == 1)
        for _ in 0..<29 {
            test.clock.advance(by: .seconds(10))
            await adopter.adoptIfDue()
        }
        #expect(test.transport.batches.count == 1)
        test.clock.advance(by: .seconds(10))
        await adopter.adoptIfDue()
        #expect(test.transport.batches.count == 2)
        await test.client.shutdown(within: .zero)
    }

    @Test("a policy makes a few requests that are refused, who asks for it goes through all spools (I15, I16)")
    func policyTriesAFew() async throws {
        let test = try TestClient(directory: directory, transport: ScriptedTransport { _ in .success(.problem(.malformed)) }) {
            $0.uploadOnlyInBackground()
        }
        for _ in 0..<DeliveryStateMachine.maximumSuspects + 4 { try await abandonSpool(["poison"]) }
        await test.client.adopter?.adoptIfDue()
        let tried = test.transport.batches.count
        #expect(tried > 1 && tried <= DeliveryStateMachine.maximumSuspects + 1)
        _ = await test.client.flush()
        #expect(test.transport.batches.count == tried + DeliveryStateMachine.maximumSuspects + 4)
        await test.client.shutdown(within: .zero)
    }
}
