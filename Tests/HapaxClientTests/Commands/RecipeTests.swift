import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// docs/client-script.md, From PostHog or Segment: its commands as they stand there.
@Suite("Recipes for those who come from another SDK (C29)", .endsWhenItHangs)
struct RecipeTests {
    private static let posthog = """
        uuid,event,timestamp,distinct_id,properties
        01976543-0000-7000-8000-000000000001,paid,2026-05-01 09:00:00.123000+00:00,anna,"{""amount"": 12.5, ""$lib"": ""web""}"
        01976543-0000-7000-8000-000000000002,$pageview,2026-05-01 09:00:01.000000+00:00,bea,{}
        """
    private static let segment = """
        id,event_text,timestamp,who,revenue
        ajs-1,Order Completed,2026-05-01 09:00:00.123+00,anna,12.5
        ajs-2,Order Completed,2026-05-01 09:00:00.123+00,bea,
        """

    @Test(
        "the documented command stores each row as an event with its properties, and a second time nothing",
        arguments: [
            ("posthog.csv", posthog, ["paid", "$pageview"], [#"{"$lib":"web","amount":12.5}"#, "{}"]),
            (
                "order_completed.csv", segment, ["Order Completed", "Order Completed"],
                [#"{"id":"ajs-1","revenue":12.5}"#, #"{"id":"ajs-2"}"#]
            ),
        ])
    func recipeStoresHistory(file: String, table: String, names: [String], properties: [String]) async throws {
        let documented = try String(contentsOf: PackageLayout.root.appending(path: "docs/client-script.md"), encoding: .utf8).split(
            separator: "\n")
        let command = try #require(documented.first { $0.hasPrefix("hapax import --csv \(file) ") })
        let server = try IngestStandIn()
        let hapax = CommandLine(server: server.url)
        let path = hapax.directory.path(file)
        try Data(table.utf8).write(to: URL(filePath: path))
        let words = command.split(separator: " ").dropFirst().map { $0 == file ? path : String($0) }
        let first = try await hapax.start(words).finish()
        #expect(first.status == 0 && first.out.hasPrefix("2 stored, 0 duplicates, 0 dead letters"), "\(first)")
        let sent = server.batches.flatMap(\.scanned.events)
        #expect(sent.map { String(decoding: $0.name, as: UTF8.self) } == names && sent.allSatisfy { $0.time / 1_000 >= 1_777_626_000 })
        #expect(sent.map { String(decoding: $0.properties, as: UTF8.self) } == properties)
        let second = try await hapax.start(words).finish()
        #expect(second.out.hasPrefix("0 stored, 2 duplicates"), "\(second)")
    }
}
