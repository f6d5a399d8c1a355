import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("Deliveries, as subscribers see them", .endsWhenItHangs)
struct EventDeliveriesTests {
    /// Reads so many; fewer if the subscription ends before.
    private func read(_ count: Int, _ deliveries: EventDeliveries) async -> [EventDelivery] {
        var iterator = deliveries.makeAsyncIterator()
        var read: [EventDelivery] = []
        while read.count < count, let delivery = await iterator.next() { read.append(delivery) }
        return read
    }

    private func rest(_ deliveries: EventDeliveries) async -> [EventDelivery] {
        await read(.max, deliveries)
    }

    @Test("every fate is told, once, in the order of the events: stored, duplicate, rejected; retry is none yet (I12)")
    func fatesAreTold() async throws {
        let test = try TestClient()
        test.transport.script { batch in
            .success(
                batch.receipt { event in
                    switch event.sequence {
                    case 2: .duplicate
                    case 3: .conflict
                    case 4: .retry
                    default: .stored
                    }
                })
        }
        let deliveries = test.client.deliveries()
        let ids = try await test.track(0..<4)
        _ = await test.client.flush()
        _ = await test.client.shutdown(within: .zero)
        #expect(
            await rest(deliveries) == [.stored(ids[0]), .duplicate(ids[1]), .rejected(ids[2], reason: "conflict", detail: "")])
    }

    @Test("an event that breaks a limit is told as rejected when its dead letter is on disk; it is never sent")
    func unfitEventIsTold() async throws {
        let test = try TestClient()
        let deliveries = test.client.deliveries()
        let id = try #require(test.client.track(String(repeating: "n", count: 201)))
        let told = try #require(await read(1, deliveries).first)
        // Not before the commit: whoever is told finds the letter.
        let deadLetter = try #require(try await test.client.deadLetters.list().first)
        #expect(deadLetter.eventID == id)
        #expect(told == .rejected(id, reason: deadLetter.reason, detail: deadLetter.detail))
    }

    @Test("nothing is told before the commit that records it: the reader finds the queue without the event (I5)")
    func toldAfterTheCommit() async throws {
        let test = try TestClient()
        let deliveries = test.client.deliveries()
        let ids = try await test.track(0..<1)
        // The server answers while the disk refuses to record it.
        test.transport.script { [queue = test.client.file] batch in
            try? queue.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA query_only = 1") }
            return .success(batch.receipt())
        }
        guard case .queue? = await test.client.flush().failure else {
            Issue.record("the commit succeeded")
            return
        }
        try test.refuseCommits(false)
        test.transport.script { .success($0.receipt { _ in .duplicate }) }
        _ = await test.client.flush()
        // The first answer, whose commit failed, told nothing.
        #expect(await read(1, deliveries) == [.duplicate(ids[0])])
        #expect(await test.client.status().depth == 0)
        _ = await test.client.shutdown(within: .zero)
        #expect(await rest(deliveries) == [])
    }

    @Test("refusals at intake are told by reason and number with the next commit, also after opting out; a purge by what it deleted")
    func dropsAreTold() async throws {
        let test = try TestClient { $0.enrichers = [{ $0.name == "unwanted" ? nil : $0 }] }
        let deliveries = test.client.deliveries()
        for _ in 0..<3 { test.client.track("unwanted") }
        try await test.track(0..<2)
        #expect(try await test.client.purge() == 2)
        #expect(
            await read(2, deliveries) == [
                .dropped(reason: "enricher", count: 3), .dropped(reason: "purged", count: 2),
            ])
        try await test.client.purge()
        try test.client.setConsent(.denied)
        test.client.track("late")
        _ = await test.client.shutdown(within: .zero)
        #expect(await rest(deliveries) == [.dropped(reason: "opted_out", count: 1)])
    }

    @Test("what the quota removes is told by reason, by the commit that removes it; a later subscriber only hears what comes")
    func quotaIsTold() async throws {
        let test = try TestClient {
            $0.queue.quota.maximumEvents = 2
            $0.queue.quota.policy = .dropOldest
        }
        let early = test.client.deliveries()
        for _ in 0..<3 { try await test.client.trackDurably("old") }
        let late = test.client.deliveries()
        try await test.client.trackDurably("new")
        #expect(await read(2, early) == Array(repeating: .dropped(reason: "quota_oldest", count: 1), count: 2))
        #expect(await read(1, late) == [.dropped(reason: "quota_oldest", count: 1)])
        _ = await test.client.shutdown(within: .zero)
        let next = try TestClient(directory: test.directory)
        let nobody = next.client.deliveries()
        try await next.client.trackDurably("next")
        _ = await next.client.shutdown(within: .zero)
        #expect(await rest(nobody) == [], "what an earlier run dropped is not told again")
    }

    @Test("what has become too old is told when an upload that sends nothing removes it (I12)")
    func agedIsTold() async throws {
        let test = try TestClient { $0.queue.quota.maximumAge = .seconds(60) }
        let deliveries = test.client.deliveries()
        try await test.track(0..<2)
        test.clock.advance(by: .seconds(61))
        _ = await test.client.flush()
        #expect(await read(1, deliveries) == [.dropped(reason: "quota_age", count: 2)])
        await test.client.shutdown(within: .zero)
    }

    @Test("what the quota removes while it is being sent is told as dropped only, whatever the server answers (I12)")
    func removedWhileSentIsToldOnce() async throws {
        let test = try TestClient {
            $0.queue.quota.maximumEvents = 2
            $0.queue.quota.policy = .dropOldest
        }
        let deliveries = test.client.deliveries()
        let first = try await test.client.trackDurably("first")
        let second = try await test.client.trackDurably("second")
        test.transport.script { [client = test.client] batch in
            if batch.ids.contains(first) { _ = try? await client.trackDurably("third") }
            return .success(batch.receipt())
        }
        for _ in 0..<2 { _ = await test.client.flush() }
        _ = await test.client.shutdown(within: .zero)
        let told = await rest(deliveries)
        #expect(told.count == 3 && told.contains(.dropped(reason: "quota_oldest", count: 1)) && told.contains(.stored(second)))
        #expect(!told.contains(.stored(first)))
    }

    @Test("each of several subscribers is told everything; a slow one misses the oldest, is told how many, and holds up nobody (I13)")
    func subscribersAreIndependent() async throws {
        let test = try TestClient()
        let quick = test.client.deliveries()
        let slow = test.client.deliveries(bufferLimit: 3)
        let ids = try await test.track(0..<120)
        #expect(await test.client.flush().stored == 120)
        #expect(await read(120, quick) == ids.map { .stored($0) })
        #expect(await read(4, slow) == [.missed(117)] + ids[117...].map { .stored($0) })
        let last = try await test.track(120..<121)
        _ = await test.client.flush()
        #expect(await read(1, slow) == [.stored(last[0])])
        #expect(await read(1, quick) == [.stored(last[0])])
    }

    @Test("a subscriber who waits is woken by the delivery")
    func waitingSubscriberIsWoken() async throws {
        let test = try TestClient()
        let deliveries = test.client.deliveries()
        async let told = read(1, deliveries)
        let ids = try await test.track(0..<1)
        _ = await test.client.flush()
        #expect(await told == [.stored(ids[0])])
    }

    @Test("the sequence ends, after what was told, at shutdown, when the client goes, and when the task is cancelled; later ones at once")
    func sequencesEnd() async throws {
        let test = try TestClient()
        let deliveries = test.client.deliveries()
        async let told = rest(deliveries)
        let ids = try await test.track(0..<1)
        _ = await test.client.shutdown(within: .seconds(1))
        #expect(await told == [.stored(ids[0])])
        #expect(await rest(test.client.deliveries()) == [])

        var another: TestClient? = try TestClient()
        let abandoned = try #require(another?.client.deliveries())
        another = nil
        #expect(await rest(abandoned) == [])

        let third = try TestClient()
        let cancelled = third.client.deliveries()
        let reader = Task { await rest(cancelled) }
        reader.cancel()
        #expect(await reader.value == [])
        try await third.track(0..<1)
        _ = await third.client.flush()
        #expect(await rest(cancelled) == [], "a subscription that has ended takes nothing more")
    }

    @Test("a subscriber who is gone leaves nothing behind: no buffer fills for nobody (I13)")
    func goneSubscriberIsForgotten() throws {
        let hub = DeliveryHub()
        weak var gone: DeliverySubscription?
        do {
            let deliveries = EventDeliveries(subscription: hub.subscribe(limit: 10))
            gone = deliveries.subscription
            var wasAsked = false
            hub.publish {
                wasAsked = true
                return [.missed(1)]
            }
            #expect(wasAsked)
        }
        #expect(gone == nil)
        hub.publish {
            Issue.record("nobody listens")
            return []
        }
    }

    @Test("a client that its owner lets go ends its subscriptions")
    func releasedClientEndsSubscriptions() async throws {
        var test: TestClient? = try TestClient()
        let (directory, deliveries) = try #require(test.map { ($0.directory, $0.client.deliveries()) })
        test = nil
        #expect(await rest(deliveries) == [])
        withExtendedLifetime(directory) {}
    }

    @Test("what becomes of another client's leftovers is told by the client that sends them")
    func leftoversAreTold() async throws {
        let directory = TemporaryDirectory()
        let main = try TestClient(directory: directory)
        let other = try TestClient(directory: directory)
        let id = try await other.client.trackDurably("left behind")
        _ = await other.client.shutdown(within: .zero)
        let deliveries = main.client.deliveries()
        #expect(await main.client.leftovers.send(isManual: true).counts.stored == 1)
        #expect(await read(1, deliveries) == [.stored(id)])
    }
}
