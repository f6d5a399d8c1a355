import Foundation
import HapaxClient
import HapaxClientService
import Logging
import TestSupport
import Testing

/// The handlers that docs/client-service.md and README.md show.
@Suite("The documented handlers", .endsWhenItHangs)
struct DocumentedHandlerTests {
    private func handle(_ order: (id: String, customer: String), _ events: EventClient) async throws {
        // In a handler:
        do throws(TrackError) {
            try await events.trackDurably(
                "order_paid", properties: ["amount": 12.5], id: .derived(name: "order_paid", key: order.id), distinctID: order.customer)
        } catch .refused(.disabled) where !events.isConfigured {
            // Without a configuration the shop sells all the same.
        }
    }

    private func sell(_ order: (id: String, amount: Double, customer: String), in orders: Orders, _ events: EventClient) async throws {
        // The sale is in your own database; it neither waits for its event nor fails with it.
        try await orders.store(order.id)
        events.track(
            "order_paid", properties: ["amount": order.amount],
            id: .derived(name: "order_paid", key: order.id), distinctID: order.customer)

        // Where the event is the only record: answer when it is on disk.
        do throws(TrackError) {
            try await events.trackDurably(
                "order_paid", properties: ["amount": order.amount],
                id: .derived(name: "order_paid", key: order.id), distinctID: order.customer)
        } catch .refused(.disabled) where !events.isConfigured {
            // Without a configuration the service works all the same.
        }
    }

    private actor Orders {
        private(set) var sold: [String] = []
        func store(_ order: String) throws { sold.append(order) }
    }

    @Test("without a configuration it answers as ever; of a client that should take events and cannot it hears (C21)")
    func handlerServesWithoutEvents() async throws {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        try await handle(("A-17", "c"), EventClient(nil, logger: logger))
        let directory = TemporaryDirectory("service")
        var broken = EventClient.Configuration.quiet(in: directory)
        broken.server = EventClient.Configuration.url("nowhere")
        await #expect(throws: TrackError.refused(.disabled)) {
            try await handle(("A-17", "c"), EventClient(broken, logger: logger))
        }
        let orders = Orders()
        for (id, configuration) in [("A-17", nil), ("A-18", broken)] {
            try? await sell((id, 1, "c"), in: orders, EventClient(configuration, logger: logger))
        }
        #expect(await orders.sold == ["A-17", "A-18"], "a sale does not depend on its event (C30)")
    }

    @Test(
        "control: they are the handlers of docs/client-service.md and README.md, to the letter",
        arguments: [
            ("docs/client-service.md", "// In a handler:", 7),
            ("README.md", "// The sale is in your own database; it neither waits for its event nor fails with it.", 13),
        ])
    func handlerIsTheDocumentedOne(file: String, first: String, count: Int) throws {
        func lines(_ file: String) throws -> [String] {
            try String(contentsOf: PackageLayout.root.appending(path: file), encoding: .utf8).split(separator: "\n").map {
                $0.trimmingCharacters(in: .whitespaces)
            }.drop { $0 != first }.prefix(count).map(\.self)
        }
        let documented = try lines(file)
        #expect(documented.count == count && documented.last == "}")
        #expect(try lines("Tests/HapaxClientServiceTests/DocumentedHandlerTests.swift") == documented)
    }
}
