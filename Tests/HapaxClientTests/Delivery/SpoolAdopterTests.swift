import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Who delivers spools, when, and until when (I1, I15, I16, D7)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct SpoolAdopterTests {
    private let directory = TemporaryDirectory()
    private let network = Locked((type: NetworkType?.none, looks: 0))

    /// Looks for spools when a test asks for it; it has looked once, without a network, as a client does when it starts.
    private func main() async throws -> TestClient {
        let looked = AwaitedCount()
        let test = try TestClient(directory: directory, transport: ScriptedTransport { _ in .failure(.cannotConnect) }) {
            $0.uploadOnlyInBackground()
            $0.network = { [network] in
                network.withLock { network in
                    network.looks += 1
                    looked.set(network.looks)
                    return network.type
                }
            }
        }
        // Once for what was stored before, once for spools.
        await looked.reaches(2)
        return test
    }

    private var spools: [QueueDirectory] { (try? QueueDirectory(path: directory.path + "/queue").spools()) ?? [] }

    private func abandonSpool() async throws {
        let spool = try TestClient(directory: directory) { $0.whenQueueIsTaken = .spool }
        try await spool.client.trackDurably("spooled")
        await spool.client.shutdown(within: .zero)
    }

    @Test("a spool that cannot be delivered is tried ever more rarely; behind a success the next one is tried at once (I15, I16)")
    func attemptsBecomeRare() async throws {
        let main = try await main()
        let adopter = try #require(main.client.adopter)
        try await abandonSpool()
        network.withLock { $0.type = .wired }
        let scheduled = main.clock.pending.count
        for _ in 0..<100 {
            await adopter.adoptIfDue()
            #expect(main.clock.pending.count == scheduled, "nothing is left of an attempt that is over")
            main.clock.advance(by: .seconds(5))
        }
        let attempts = main.transport.batches.count
        #expect(attempts > 3 && attempts < 60)
        main.transport.script { .success($0.receipt()) }
        #expect(await adopter.adopt().counts.stored == 1)
        try await abandonSpool()
        main.transport.script { _ in .failure(.cannotConnect) }
        await adopter.adoptIfDue()
        #expect(main.transport.batches.count == attempts + 2)
        main.clock.advance(by: .seconds(5))
        await adopter.adoptIfDue()
        #expect(main.transport.batches.count == attempts + 3, "a first failure is not the last of many")
        await main.client.shutdown(within: .zero)
    }

    @Test(
        "a server's wish to be left alone holds for spools as well, and why they wait is told (I15, I16)",
        arguments: [(TransportAnswer.problem(.overloaded, headers: ["retry-after": "120"]), 120), (.problem(.unknownKey), 300)])
    func serverIsLeftAlone(answer: TransportAnswer, seconds: Int) async throws {
        let main = try await main()
        let adopter = try #require(main.client.adopter)
        main.transport.script { _ in .success(answer) }
        try await abandonSpool()
        network.withLock { $0.type = .wired }
        for _ in 0..<seconds / 5 {
            await adopter.adoptIfDue()
            main.clock.advance(by: .seconds(5))
        }
        #expect(main.transport.batches.count == 1)
        #expect(await main.client.status().failure == adopter.adopt().failure, "asked for it is tried all the same")
        #expect(main.transport.batches.count == 2)
        main.transport.script { .success($0.receipt()) }
        main.clock.advance(by: .seconds(300))
        await adopter.adoptIfDue()
        #expect(await main.client.status().failure == nil && spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("where the server has asked the main queue for a rest, it is asked for no spool either (I16)")
    func mainQueuesRestHolds() async throws {
        let main = try await main()
        let adopter = try #require(main.client.adopter)
        main.transport.script { _ in .success(.problem(.overloaded, headers: ["retry-after": "120"])) }
        network.withLock { $0.type = .wired }
        try await main.track(0..<1)
        #expect(await main.client.flush().failure != nil)
        main.transport.script { _ in .failure(.cannotConnect) }
        #expect(await main.client.flush().failure != nil, "which takes no wish back")
        try await abandonSpool()
        for _ in 0..<24 {
            await adopter.adoptIfDue()
            #expect(!main.transport.batches.contains { $0.names == ["spooled"] })
            main.clock.advance(by: .seconds(5))
        }
        main.transport.script { .success($0.receipt()) }
        #expect(await main.client.delivery.drain().failure == nil)
        await adopter.adoptIfDue()
        #expect(main.transport.batches.contains { $0.names == ["spooled"] } && spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test(
        "while the server takes nothing of the main queue's events it is asked for no spool either: one backoff, not two (I16)",
        arguments: [.failure(.cannotConnect), .success(TransportAnswer(status: 503)), .success(.problem(.unknownKey)), nil]
            as [Result<TransportAnswer, TransportFailure>?])
    func outageHasOneBackoff(answer: Result<TransportAnswer, TransportFailure>?) async throws {
        let main = try await main()
        let adopter = try #require(main.client.adopter)
        try await abandonSpool()
        main.transport.script { answer ?? .success($0.receipt { _ in .retry }) }
        network.withLock { $0.type = .wired }
        try await main.track(0..<1)
        #expect(await main.client.flush().failure != nil)
        for _ in 0..<240 {
            await adopter.adoptIfDue()
            main.clock.advance(by: .seconds(5))
        }
        #expect(main.transport.batches.allSatisfy { $0.names == ["event 0"] })
        main.transport.script { .success($0.receipt()) }
        #expect(await main.client.delivery.drain().failure == nil)
        await adopter.adoptIfDue()
        #expect(spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("the main queue's backoff that ended without a network holds up no spool once there is one again (I15)")
    func lostNetworkHoldsUpNoSpool() async throws {
        let main = try await main()
        let adopter = try #require(main.client.adopter)
        try await abandonSpool()
        network.withLock { $0.type = .wired }
        try await main.track(0..<1)
        let delivery = main.client.delivery
        #expect(await main.client.flush().failure == .transport(.cannotConnect))
        network.withLock { $0.type = nil }
        await delivery.waitEnded(delivery.restNumber)
        await delivery.restBegins()
        main.transport.script { .success($0.receipt()) }
        network.withLock { $0.type = .wired }
        await adopter.adoptIfDue()
        #expect(spools.isEmpty && main.client.queue.books.depth == 1)
        await main.client.shutdown(within: .zero)
    }

    @Test("nor does the main queue's last refused attempt while its file cannot be read: nobody asks the server for it then (I15)")
    func unreadableMainHoldsUpNoSpool() async throws {
        let disk = FaultyDisk(directory.path + "/queue/queue.sqlite")
        let main = try await main()
        let adopter = try #require(main.client.adopter)
        try await abandonSpool()
        network.withLock { $0.type = .wired }
        try await main.track(0..<1)
        #expect(await main.client.flush().failure == .transport(.cannotConnect))
        main.transport.script { .success($0.receipt()) }
        try main.client.queue.readPagesAnew()
        disk.cutOff(at: 0, [.read])
        let delivery = main.client.delivery
        await delivery.waitEnded(delivery.restNumber)
        await delivery.restBegins()
        #expect(disk.failures > 0)
        disk.fail(nil)
        await adopter.adoptIfDue()
        #expect(spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("events of a spool whose bytes changed in a damaged file are in the next flush's report, whoever delivered it (I12)")
    func changedEventOfASpoolIsReported() async throws {
        for isAskedFor in [true, false] {
            let main = try await main()
            main.transport.script { .success($0.receipt()) }
            let spool = try TestClient(directory: directory) { $0.whenQueueIsTaken = .spool }
            let file = spool.client.queue.directory.databasePath
            try await spool.track(0..<20)
            try await spool.client.queue.database.write { try $0.execute(sql: "UPDATE queue SET check_sum = 1 - check_sum WHERE row = 3") }
            await spool.client.shutdown(within: .zero)
            try FileManager.default.moveItem(atPath: file, toPath: file + ".damaged-1")
            network.withLock { $0.type = .wired }
            if !isAskedFor { await main.client.adopter?.adoptIfDue() }
            #expect(await main.client.flush().deadLettered == 1 && spools.isEmpty)
            #expect(await main.client.flush().deadLettered == 0)
            await main.client.shutdown(within: .zero)
        }
    }

    @Test("behind a shutdown that cut its delivery short a spool is free for the next (D7)")
    func shutdownFreesTheSpool() async throws {
        let main = try await main()
        main.transport.script { [transport = main.transport] _ in await transport.hang() }
        try await abandonSpool()
        network.withLock { $0.type = .wired }
        let flush = Task { await main.client.flush() }
        await main.transport.requests(1)
        await main.client.shutdown(within: .zero)
        let directory = try #require(spools.first)
        let queue = try EventQueue(
            directory: directory, durability: .process, newInstallID: .derived(name: "install", key: "new"), isSpool: true)
        #expect(queue.books.depth == 1)
        queue.close()
        _ = await flush.value
    }

    @Test("a flush during a look that fails, or has passed a spool by, looks again; what both delivered is told once (I15)")
    func flushDuringALookHasItsOwn() async throws {
        for fails in [true, false] {
            let main = try await main()
            let adopter = try #require(main.client.adopter)
            let mayAnswer = AwaitedCount()
            main.transport.script { [transport = main.transport] batch in
                guard transport.batches.count == 1 else { return .success(batch.receipt()) }
                await mayAnswer.reaches(1)
                return fails ? .failure(.cannotConnect) : .success(batch.receipt())
            }
            try await abandonSpool()
            network.withLock { $0.type = .wired }
            async let look: Void = adopter.adoptIfDue()
            await main.transport.requests(1)
            async let first = adopter.adopt()
            async let second = adopter.adopt()
            // Time to find the look under way; without it the test would only see less.
            for _ in 0..<50 { await Task.yield() }
            try await abandonSpool()
            mayAnswer.set(1)
            let states = await [first, second]
            await look
            #expect(states.map(\.failure) == [nil, nil] && spools.isEmpty)
            #expect(states.map(\.counts.stored).reduce(0, +) == 2)
            await main.client.shutdown(within: .zero)
        }
    }

    @Test("a rest that the main queue is asked for while spools are delivered begins behind the one under way (I16)")
    func restBeginsBehindASpool() async throws {
        let main = try await main()
        let adopter = try #require(main.client.adopter)
        for _ in 0..<2 { try await abandonSpool() }
        network.withLock { $0.type = .wired }
        let delivery = main.client.delivery
        main.transport.script { batch in
            guard batch.names == ["spooled"] else { return .success(.problem(.overloaded, headers: ["retry-after": "120"])) }
            _ = await delivery.drain()
            return .success(batch.receipt())
        }
        main.client.track("waiting")
        try await main.client.waitUntilStored()
        await adopter.adoptIfDue()
        #expect(main.transport.batches.map(\.names) == [["spooled"], ["waiting"]] && spools.count == 1)
        main.transport.script { .success($0.receipt()) }
        #expect(await delivery.drain().failure == nil)
        await adopter.adoptIfDue()
        #expect(spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("without a network nothing is tried, and that is no failure: with one the spool is delivered at once (R23, I15)")
    func missingNetworkIsNoFailure() async throws {
        let main = try await main()
        main.transport.script { .success($0.receipt()) }
        let adopter = try #require(main.client.adopter)
        try await abandonSpool()
        for _ in 0..<30 {
            await adopter.adoptIfDue()
            main.clock.advance(by: .seconds(5))
        }
        #expect(main.transport.batches.isEmpty)
        network.withLock { $0.type = .wired }
        await adopter.adoptIfDue()
        #expect(main.transport.batches.count == 1 && spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("stopping ends a backoff between two attempts, and who stopped it finds the spool free; later none is begun (D7)")
    func stoppingEndsABackoff() async throws {
        let main = try await main()
        let adopter = try #require(main.client.adopter)
        try await abandonSpool()
        let scheduled = main.clock.pending.count
        async let adopted = adopter.adopt(persistently: true)
        await main.clock.scheduled(scheduled + 1)
        await adopter.stop()
        let left = try EventQueue(
            directory: #require(spools.first), durability: .process, newInstallID: .derived(name: "i", key: "other"))
        #expect(left.books.depth == 1)
        left.close()
        #expect(await adopted.failure == .transport(.cannotConnect))
        main.transport.script { .success($0.receipt()) }
        let later = await adopter.adopt()
        #expect(later.counts.stored == 0 && later.failure == .shutDown && spools.count == 1)
        await main.client.shutdown(within: .zero)
    }

    @Test("who persists goes on where an attempt that was under way gives up (R38)")
    func persistenceOutlastsAnAttempt() async throws {
        let main = try await main()
        let adopter = try #require(main.client.adopter)
        let mayFail = AwaitedCount()
        main.transport.script { [transport = main.transport] batch in
            guard transport.batches.count == 1 else { return .success(batch.receipt()) }
            await mayFail.reaches(1)
            return .failure(.cannotConnect)
        }
        try await abandonSpool()
        async let once = adopter.adopt()
        await main.transport.requests(1)
        async let persistent = adopter.adopt(persistently: true)
        // Time to find the other one under way; without it the test would only see less.
        for _ in 0..<50 { await Task.yield() }
        mayFail.set(1)
        #expect(await once.failure == .transport(.cannotConnect))
        #expect(await persistent.counts.stored == 1 && spools.isEmpty)
        await main.client.shutdown(within: .zero)
    }

    @Test("a server that refuses for a reason which time does not change is asked once, however much time there is (I16, R38)")
    func refusedKeyEndsPersistence() async throws {
        let main = try await main()
        main.transport.script { _ in .success(TransportAnswer(status: 401)) }
        try await abandonSpool()
        let adopted = try #require(await main.client.adopter?.adopt(persistently: true))
        #expect(adopted.failure != nil && main.transport.batches.count == 1 && spools.count == 1)
        await main.client.shutdown(within: .zero)
    }

    @Test("a disk that hangs while a spool's dead letters are moved stops no task but the client's own (D7)")
    func hangingDiskStopsNobodyElse() async throws {
        let hangs = Gate()
        var tests: [TestClient] = []
        var disks: [Task<Void, any Error>] = []
        // One more than the language has threads.
        for count in 1...ProcessInfo.processInfo.activeProcessorCount + 1 {
            let test = try TestClient()
            let spool = try TestClient(directory: test.directory) { $0.whenQueueIsTaken = .spool }
            spool.client.track("")
            await spool.client.shutdown(within: .zero)
            disks.append(
                Task { [queue = test.client.queue] in
                    try await blocking { try queue.database.writeWithoutTransaction { _ in hangs.blockUntilOpen() } }
                })
            await hangs.waitForArrivals(count)
            tests.append(test)
        }
        let moves = tests.map { test in Task { await test.client.adopter?.adopt().failure } }
        // Time for all of them to come to the disk; without it the test would only see less.
        for _ in 0..<50_000 { await Task.detached {}.value }
        hangs.open()
        for disk in disks { try await disk.value }
        for move in moves { #expect(await move.value == nil) }
        for test in tests {
            #expect(try test.client.queue.deadLetterCount() == 1)
            await test.client.shutdown(within: .zero)
        }
    }

    @Test("all dead letters of a spool are moved, however many they are, and then it is removed (I1, I12)")
    func manyDeadLettersAreMoved() async throws {
        let main = try await main()
        let spool = try TestClient(directory: directory) { $0.whenQueueIsTaken = .spool }
        for _ in 0..<1_100 { spool.client.track("") }
        await spool.client.shutdown(within: .zero)
        #expect(await main.client.flush().failure == nil)
        #expect(spools.isEmpty)
        #expect(try main.client.queue.deadLetterCount() == 1_100)
        #expect(await main.client.status().isBalanced)
        await main.client.shutdown(within: .zero)
    }
}
