import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// All events of an app.
private enum ShopEvent: TypedEvent {
    case opened
    case paid(order: String, amount: Double)

    var eventName: String {
        switch self {
        case .opened: "opened"
        case .paid: "order_paid"
        }
    }

    var properties: Properties {
        switch self {
        case .opened: [:]
        case .paid(let order, let amount): ["order": order, "amount": amount]
        }
    }
}

private struct Shipped: TypedEvent, Encodable {
    var eventName: String { "order_shipped" }
    var order = "A-17"
    var at = Date(timeIntervalSince1970: 1)
}

/// What an app's own test hands in: three requirements, and every call arrives at them.
private final class Notebook: EventTracking {
    let events = Locked<[NewEvent]>([])

    func track(_ event: NewEvent) -> EventID? {
        events.withLock { $0.append(event) }
        return event.id == .made ? .derived(name: event.name, key: "1") : event.id
    }
    func trackDurably(_ event: NewEvent) async throws(TrackError) -> EventID {
        guard let id = track(event) else { throw .refused(.disabled) }
        return id
    }
    func identify(_ id: String?) { track("identified", distinctID: id) }
}

@Suite("Typed events, and who takes events", .endsWhenItHangs)
struct EventTrackingTests {
    private func checkOut(_ events: any EventTracking) async throws {
        events.identify("anna")
        events.track("viewed", properties: ["order": "A-17"])
        events.track(ShopEvent.opened)
        events.track(ShopEvent.paid(order: "A-17", amount: 12.5), distinctID: "bea")
        try await events.trackDurably(Shipped(), id: .derived(name: "order_shipped", key: "A-17"))
        events.track("encoded", encoding: ["a": 1])
    }

    @Test("each call of whoever takes events is one of its requirements; the client stores the same")
    func callsAreRequirements() async throws {
        let (notebook, test) = (Notebook(), try TestClient { $0.distinctID = nil })
        try await checkOut(notebook)
        try await checkOut(test.client)
        _ = await test.client.flush()
        let noted = notebook.events.withLock { $0 }
        let sent = test.transport.batches.flatMap(\.scanned.events)
        let names = ["viewed", "opened", "order_paid", "order_shipped", "encoded"]
        #expect(
            noted.map(\.name) == ["identified"] + names && sent.map { String(decoding: $0.name, as: UTF8.self) } == ["$identify"] + names)
        #expect(noted[3].properties == ["order": "A-17", "amount": 12.5] && noted[3].distinctID == "bea")
        #expect(noted[4].properties == ["order": "A-17", "at": 1_000] && noted[4].id == sent[4].id)
        #expect(String(decoding: sent[4].properties, as: UTF8.self).contains(#""at":1000"#))
    }

    @Test("a preview takes none")
    func noEventsTakesNone() async {
        #expect(NoEvents().track("event") == nil)
        await #expect(throws: TrackError.refused(.disabled)) { try await NoEvents().trackDurably(Shipped()) }
    }
}
