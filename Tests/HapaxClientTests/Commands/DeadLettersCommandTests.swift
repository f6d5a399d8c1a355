import Foundation
import HapaxModel
import Testing

@testable import HapaxClient

@Suite("hapax dead-letters", .endsWhenItHangs)
struct DeadLettersCommandTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    /// Letters numbered from 1, which the server refused.
    private func makeLetters(_ count: Int) async throws {
        server.change { $0.isRefused = { _ in true } }
        let lines = (1...count).map {
            #"{"event_id":"\#(EventID.derived(name: "letter", key: "\($0)"))","event":"e","time":\#($0),"distinct_id":"u"}"#
        }
        #expect(try await hapax.run("import", "-", input: lines.joined(separator: "\n")).status == 3)
    }

    @Test("list goes page by page, and export tells all of them, however many they are")
    func pagesAreWhole() async throws {
        try await makeLetters(1_001)
        let page = try await hapax.run("dead-letters", "list", "--after", "1-8", "--limit", "3", "--json")
        #expect(page.jsonLines.compactMap { $0["number"] as? String } == ["1-9", "1-10", "1-11"])
        let export = try await hapax.run("dead-letters", "export")
        #expect(export.jsonLines.compactMap { ($0["event"] as? [String: Any])?["time"] as? Int } == Array(1...1_001))
    }

    @Test("retry puts back the one that is named, and no other")
    func retryIsOfTheNamed() async throws {
        server.change { $0.isRefused = { _ in true } }
        for _ in 1...2 { #expect(try await hapax.run("track", "e").status == 3) }
        let retried = try await hapax.run("dead-letters", "retry", "1-2", "--json")
        #expect(retried.status == 0 && retried.json["retried"] as? Int == 1)
        #expect(try await hapax.run("dead-letters", "list", "--json").json["number"] as? String == "1-1")
        #expect(try await hapax.run("status", "--json").json["waiting"] as? Int == 1)
    }
}
