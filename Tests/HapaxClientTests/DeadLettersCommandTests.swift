import Testing

@testable import HapaxClient

@Suite("hapax dead-letters")
struct DeadLettersCommandTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    /// Letters numbered from 1, made of lines that are no events.
    private func makeLetters(_ count: Int) async throws {
        let input = (1...count).map { "bad \($0)" }.joined(separator: "\n")
        #expect(try await hapax.run("import", "-", input: input).status == 3)
    }

    @Test("list goes page by page, and export tells all of them, however many they are")
    func pagesAreWhole() async throws {
        try await makeLetters(1_001)
        let page = try await hapax.run("dead-letters", "list", "--after", "8", "--limit", "3", "--json")
        #expect(page.jsonLines.compactMap { $0["number"] as? Int } == [9, 10, 11])
        let export = try await hapax.run("dead-letters", "export")
        #expect(export.jsonLines.compactMap { $0["text"] as? String } == (1...1_001).map { "bad \($0)" })
    }

    @Test("retry puts back the one that is named, and no other")
    func retryIsOfTheNamed() async throws {
        server.change { $0.isRefused = { _ in true } }
        for _ in 1...2 { #expect(try await hapax.run("track", "e").status == 3) }
        let retried = try await hapax.run("dead-letters", "retry", "2", "--json")
        #expect(retried.status == 0 && retried.json["retried"] as? Int == 1)
        #expect(try await hapax.run("dead-letters", "list", "--json").json["number"] as? Int == 1)
        #expect(try await hapax.run("status", "--json").json["depth"] as? Int == 1)
    }
}
