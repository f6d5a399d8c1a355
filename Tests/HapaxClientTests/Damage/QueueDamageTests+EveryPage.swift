import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Each page of a client's own queue, one after the other, at each moment.
extension QueueDamageTests {
    enum Met: CaseIterable {
        /// By a start behind a clean end, which reads little.
        case afterACleanEnd
        /// By a start behind a kill, which looks at all of the file.
        case afterAKill
        case whileRunning
    }

    enum Next: CaseIterable { case delivery, failedDelivery, shutdown, tracking, purge, purgeOfWaiting }

    /// What a server got that answers each request with a receipt.
    private struct Sent {
        var names: Set<String> = []
        var sequences: [Place: EventID] = [:]
        /// Places at which two events came.
        var torn: Set<Place> = []

        struct Place: Hashable {
            let install: EventID?
            let sequence: Int64
        }

        mutating func take(_ batch: SentBatch) {
            names.formUnion(batch.names)
            for (id, sequence) in zip(batch.ids, batch.sequences) {
                let place = Place(install: batch.scanned.envelope.installID, sequence: sequence)
                if sequences.updateValue(id, forKey: place) ?? id != id { torn.insert(place) }
            }
        }
    }

    @Test(
        "whichever page of a queue is damaged, and whenever that is met: each event arrives, is a dead letter, or is counted; none comes back behind a purge (I1, I7, I11, I12, D16)",
        arguments: Met.allCases, Next.allCases)
    func everyPageIsAccountedFor(met: Met, next: Next) async throws {
        var (page, pages, damaged) = (0, 1, 0)
        while page < pages {
            let directory = TemporaryDirectory()
            let sent = Locked(Sent())
            let receive: ScriptedTransport.Answer = { batch in
                sent.withLock { $0.take(batch) }
                return .success(batch.receipt())
            }
            func open() throws -> TestClient {
                try TestClient(directory: directory, transport: ScriptedTransport(receive))
            }
            func track(_ numbers: ClosedRange<Int>, _ test: TestClient) {
                for number in numbers {
                    test.client.track("tracked \(number)", properties: ["fill": .string(String(repeating: "x", count: 500))])
                }
            }
            var test = try open()
            track(1...5, test)
            #expect(await test.client.flush().stored == 5)
            track(6...35, test)
            test.client.track(String(repeating: "n", count: 1_000))
            try await test.client.writer.barrier()
            let place = test.client.queue.directory
            if met == .whileRunning { try test.client.queue.readPagesAnew() } else { await test.client.shutdown(within: .zero) }
            pages = try DamagedPage.pages(of: place.databasePath)
            try DamagedPage.make(in: place.databasePath, page: page)
            if met == .afterAKill { try Data().write(to: URL(fileURLWithPath: place.databasePath + "-wal")) }
            if met != .whileRunning { test = try open() }

            switch next {
            case .tracking: break
            case .delivery: _ = await test.client.flush()
            case .failedDelivery:
                test.transport.script { _ in .failure(.cut) }
                _ = await test.client.flush()
                test.transport.script(receive)
            case .shutdown:
                await test.client.shutdown(within: .zero)
                test = try open()
            case .purge: _ = try await test.client.purge()
            case .purgeOfWaiting: _ = try await test.client.queue.salvaging { try await $0.purgeWaiting() }
            }
            track(36...40, test)
            for _ in 1...3 {
                _ = await test.client.flush()
                // Throws if it is the one who meets it.
                _ = try? test.client.deadLetters.list()
            }

            let status = await test.client.status()
            let letters = try test.client.deadLetters.list()
            let (dropped, buried) = (status.dropped, letters.filter { $0.reason == DamagedRows.reason }.count)
            let (lost, lostLetters) = (dropped["damaged"] ?? 0, dropped["damaged_dead_letter"] ?? 0)
            let result = sent.withLock { $0 }
            let said = Comment(rawValue: "page \(page): \(result.names.count) names, \(buried) buried, \(dropped), \(status)")
            #expect(status.isBalanced && status.depth == 0, said)
            #expect(result.torn == [], said)
            #expect((36...40).allSatisfy { result.names.contains("tracked \($0)") }, said)
            let waiting = (6...35).filter { result.names.contains("tracked \($0)") }.count
            switch next {
            case .purge: #expect(waiting == 0 && letters.isEmpty, said)
            case .purgeOfWaiting: #expect(waiting == 0 && letters.count + Int(lostLetters) >= 1, said)
            default: #expect(letters.count - buried + Int(lostLetters) >= 1, said)
            }
            #expect(waiting + buried + Int(lost + (dropped["purged"] ?? 0)) >= 30, said)
            if !place.filesSetAside.isEmpty { damaged += 1 }
            await test.client.shutdown(within: .zero)
            page += 1
        }
        #expect(pages > 10 && damaged > pages / 2, "\(damaged) of \(pages)")
    }
}
