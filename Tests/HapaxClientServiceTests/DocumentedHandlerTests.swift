import Foundation
import HapaxClient
import HapaxClientService
import Logging
import TestSupport
import Testing

/// The handler that docs/client.md shows.
@Suite("The documented handler", .endsWhenItHangs)
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
    }

    @Test("control: it is the handler of docs/client.md, to the letter")
    func handlerIsTheDocumentedOne() throws {
        func lines(_ file: String) throws -> [String] {
            try String(contentsOf: PackageLayout.root.appending(path: file), encoding: .utf8).split(separator: "\n").map {
                $0.trimmingCharacters(in: .whitespaces)
            }.drop { $0 != "// In a handler:" }.prefix(7).map(\.self)
        }
        let documented = try lines("docs/client.md")
        #expect(documented.count == 7 && documented.last == "}")
        #expect(try lines("Tests/HapaxClientServiceTests/DocumentedHandlerTests.swift") == documented)
    }
}
