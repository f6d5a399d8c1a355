import HapaxModel
import TestSupport
import Testing

/// Several servers, one poison event, foreign senders.
@Suite("Many at once", .serialized, .endsWhenItHangs)
struct ConcurrencyTests {
    private static let headers = ["Authorization": "Bearer \(ServerUnderTest.key)", "Content-Type": "application/json"]

    private struct Sums: Sendable {
        var stored = 0
        var duplicates = 0
    }

    /// Feeds the same batches to two servers at once, in opposite order, each batch's events in opposite order as well.
    private func feedInOppositeOrder(
        _ stores: (PipelineStore, PipelineStore), batches: Int, size: Int
    ) async throws -> (left: Sums, right: Sums, audit: Audit) {
        let servers = (try await ServerUnderTest.start(stores.0), try await ServerUnderTest.start(stores.1))
        var ids = UUIDv7Generator()
        let events = (0..<batches * size).map { index in
            Event(id: ids.next(unixMilliseconds: 1_767_225_600_000), name: "order_paid", time: 1_767_225_600_000, distinctID: "c\(index)")
        }
        let lists = stride(from: 0, to: events.count, by: size).map { events[$0..<$0 + size].map { $0.encoded().bytes } }
        async let left = Self.feed(lists, to: servers.0.port)
        async let right = Self.feed(lists.reversed().map { $0.reversed() }, to: servers.1.port)
        let sums = (try await left, try await right)
        await servers.0.stop()
        await servers.1.stop()
        var audit = Audit()
        audit.reports = events.map { Audit.Report(id: $0.id) }
        audit.rows = try await stores.0.rows()
        if stores.0.setting != stores.1.setting { audit.rows += try await stores.1.rows() }
        return (sums.0, sums.1, audit)
    }

    private static func feed(_ lists: [[[UInt8]]], to port: Int) async throws -> Sums {
        var sums = Sums()
        for list in lists {
            let body = EventBatch(envelope: .init(), events: list).encoded()
            var receipt: Receipt?
            // A server that lost a deadlock too often says 503; what it then stored is found again.
            while receipt == nil {
                let answer = try await RawHTTP.post(port: port, headers: headers, body: body)
                if answer.status == 200 { receipt = try Receipt(json: answer.body) }
            }
            sums.stored += receipt?.stored ?? 0
            sums.duplicates += receipt?.duplicates ?? 0
        }
        return sums
    }

    @Test("Two servers fed the same batches at once in opposite order store each event once (I2, I10)")
    func twoServersInOppositeOrder() async throws {
        let store = try await PipelineStore(.postgres)
        let (left, right, audit) = try await feedInOppositeOrder((store, store), batches: 40, size: 200)
        #expect(audit.violations == [])
        #expect(audit.rows.count == 8_000)
        #expect(left.stored + right.stored == 8_000)
        #expect(left.duplicates + right.duplicates == 8_000)
        // They met: each stored some, and found some of the other's.
        #expect(left.stored > 0 && right.stored > 0)
        #expect(left.duplicates > 0 && right.duplicates > 0)
    }

    @Test("Control: two servers that do not share their unique key fail the same audit")
    func twoServersWithoutASharedKeyFail() async throws {
        let stores = (try await PipelineStore(.postgres), try await PipelineStore(.postgres))
        let (left, right, audit) = try await feedInOppositeOrder(stores, batches: 4, size: 50)
        #expect(left.stored + right.stored == 400)
        #expect(audit.violations.count == 200)
        #expect(audit.violations.allSatisfy { if case .storedTwice(_, _, copies: 2) = $0 { true } else { false } })
    }

    @Test("One poison event in 10,000 goes to the dead letters with its reason; every other one is stored (I1, I8, D13)")
    func onePoisonEventInTenThousand() async throws {
        let store = try await PipelineStore(.postgres)
        let server = try await ServerUnderTest.start(store)
        let client = try await ClientUnderTest(port: server.port, batchSize: 500)
        for start in stride(from: 0, to: 10_000, by: 1_000) {
            try await withThrowingTaskGroup(of: Void.self) { group in
                for index in start..<start + 1_000 {
                    group.addTask { try await client.track(properties: ["note": index == 6_174 ? "a\u{0}b" : "fine"]) }
                }
                try await group.waitForAll()
            }
        }
        try await client.drain()
        await server.stop()
        let audit = try await client.audit(store)
        #expect(audit.violations == [])
        #expect(audit.rows.count == 9_999)
        #expect(audit.deadLetters.map(\.reason) == ["nul_character"])
    }

    @Test("A poison event of a foreign sender is rejected alone, in the middle of its batch (I8)", arguments: PipelineStore.Kind.allCases)
    func foreignPoisonCostsOnlyItself(kind: PipelineStore.Kind) async throws {
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store)
        var ids = UUIDv7Generator()
        var events = (0..<999).map { _ in
            Event(id: ids.next(unixMilliseconds: 1_767_225_600_000), name: "e", time: 1, distinctID: "d").encoded().bytes
        }
        events.insert(
            Array(#"{"event_id":"\#(EventID.derived(name: "p", key: "1"))","event":"e","time":1,"distinct_id":"\ud800"}"#.utf8), at: 500)
        let body = EventBatch(envelope: .init(), events: events).encoded()
        let answer = try await RawHTTP.post(port: server.port, headers: Self.headers, body: body)
        let receipt = try Receipt(json: answer.body)
        #expect(receipt.stored == 999)
        #expect(receipt.results.map(\.index) == [500])
        #expect(receipt.results.map(\.reason) == ["lone_surrogate"])
        await server.stop()
        #expect(try await store.rows().count == 999)
    }
}
