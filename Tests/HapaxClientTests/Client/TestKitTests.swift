import Foundation
import HapaxClient
import HapaxModel
import HapaxTestKit
import Testing

/// As an app's own tests use it: nothing but what is public.
@Suite("HapaxTestKit", .endsWhenItHangs)
struct TestKitTests {
    private struct Order: Codable, Equatable {
        var order: String
        var at: Date
    }

    @Test("an event that was tracked is asserted in three lines; what it says can be a type")
    func eventIsAsserted() async throws {
        let events = try TestEvents()
        events.client.track("order_paid", properties: ["amount": 12.5])
        #expect(try await events.first(named: "order_paid")["amount"] == 12.5)

        let order = Order(order: "A-17", at: Date(timeIntervalSince1970: 1_763_679_999))
        events.client.track("order_shipped", encoding: order, distinctID: "anna")
        let shipped = try await events.first(named: "order_shipped")
        #expect(try shipped.decode(Order.self) == order && shipped.distinctID == "anna" && shipped.time == events.clock.now)
        #expect(await events.all().map(\.name) == ["order_paid", "order_shipped"])
        await events.clear()
        #expect(await events.all() == [])
    }

    private enum Plan: String, PropertyValueConvertible { case free, pro }

    @Test("a property is compared with a variable, a literal or another property, each alone, as people write it")
    func propertyIsCompared() async throws {
        let events = try TestEvents()
        let (order, amount, items, at, plan, coupon, skus) = (
            "A-17", 12.5, 3, Date(timeIntervalSince1970: 1), Plan.pro, String?.none, ["a"]
        )
        events.client.track(
            "paid",
            properties: [
                "order": order, "amount": amount, "items": items, "at": at, "plan": plan, "coupon": coupon, "gift": true, "skus": skus,
            ])
        let paid = try await events.first(named: "paid")
        #expect(paid["order"] == order)
        #expect(paid["amount"] == amount)
        #expect(paid["items"] == items)
        #expect(paid["at"] == at)
        #expect(paid["plan"] == plan)
        #expect(paid["coupon"] == coupon)
        #expect(paid["skus"] == skus)
        #expect(paid["order"] != "B-18")
        #expect(paid["order"] != coupon)
        #expect(paid["order"] == "A-17")
        #expect(paid["amount"] == 12.5)
        #expect(paid["items"] == 3)
        #expect(paid["gift"] == true)
        #expect(paid["plan"] == "pro")
        #expect(paid["skus"] == ["a"])
        #expect(paid["coupon"] == nil)
        #expect(paid["order"] != nil)
        #expect(paid["order"] == paid["order"])
        #expect(paid["order"] != paid["amount"])
        #expect(paid["order"] == order && paid["items"] == items)
        #expect(try #require(paid["order"]) == .string(order))
        let wrong = "B-18"
        #expect(!(paid["order"] == wrong) && !(paid["order"] == coupon) && !(paid["coupon"] == wrong))
    }

    @Test("who waits for an event that comes later gets it; one that does not come is an error that names what came")
    func eventIsWaitedFor() async throws {
        let events = try TestEvents()
        async let late = events.first(named: "late", within: .seconds(60))
        events.client.track("early")
        events.client.track("late")
        #expect(try await late.name == "late")
        let error = await #expect(throws: TestEvents.NotTracked.self) { try await events.first(named: "never", within: .milliseconds(1)) }
        #expect(error?.description.contains("early, late") == true)
    }

    @Test("a server that loses an answer gets the events again, and stores each once; one that refuses makes dead letters")
    func serverDoesAsItIsTold() async throws {
        let events = try TestEvents()
        events.server.loses(answers: 1)
        events.client.track("a")
        #expect(await events.client.flush().failure != nil)
        let report = await events.client.flush()
        #expect(report.duplicates == 1 && report.stored == 0 && events.server.received.map(\.name) == ["a", "a"])
        events.server.fails(503)
        events.client.track("b")
        #expect(await events.client.flush().remaining == 1)
        events.server.rejects("name_too_long")
        #expect(await events.client.flush().deadLettered == 1)
        #expect(try await events.client.deadLetters.list().map(\.reason) == ["name_too_long"])
    }

    @Test("the app's life and the clock are the test's")
    func lifeIsTheTests() async throws {
        let events = try TestEvents()
        await events.become(.active)
        events.clock.advance(by: .seconds(90))
        await events.become(.background)
        #expect(await events.all().map(\.name) == ["$AppStart", "$AppEnd"])
        #expect(try await events.first(named: "$AppEnd")["$event_duration"] == 90)
    }

    @Test("what is sent, or would be, is listed: not what a denial or a purge has deleted, but what the server was sent (C33)")
    func deletedEventsAreNotListed() async throws {
        let events = try TestEvents { $0.consent = .pending }
        events.client.track("before")
        #expect(await events.all().map(\.name) == ["before"])
        try events.client.setConsent(.denied)
        #expect(await events.all() == [])
        await #expect(throws: TestEvents.NotTracked.self) { try await events.first(named: "before", within: .milliseconds(1)) }
        try events.client.setConsent(.granted)
        events.client.track("sent")
        #expect(await events.client.flush().stored == 1)
        events.client.track("waits")
        #expect(await events.all().map(\.name) == ["sent", "waits"])
        #expect(try await events.client.purge() == 1)
        #expect(await events.all().map(\.name) == ["sent"])
    }

    @Test("whether events have a session is the test's to say, on every system (C33)", arguments: [false, true])
    func sessionIsTheTests(isApp: Bool) async throws {
        let events = try TestEvents { if isApp { $0.isApp = true } }
        events.client.track("event")
        #expect((try await events.first(named: "event")["$session_id"] != nil) == isApp && (events.client.sessionID != nil) == isApp)
    }

    @Test("each of two tests at once has a shared client of its own, for its task and its children")
    func sharedIsTheTests() async throws {
        let pair = (try TestEvents(), try TestEvents())
        async let first: Void = withShared(pair.0) { _ = await Task { EventClient.shared.track("first") }.value }
        async let second: Void = withShared(pair.1) { EventClient.shared.track("second") }
        _ = await (first, second)
        withShared(pair.0) { _ = EventClient.shared.track("third") }
        #expect(await pair.0.all().map(\.name) == ["first", "third"])
        #expect(await pair.1.all().map(\.name) == ["second"])
        #expect(EventClient.shared !== pair.0.client)
    }
}
