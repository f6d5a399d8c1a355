#if os(Linux)
import Foundation
import TestSupport
import Testing

/// Reads the compiler's own description of what is public, out of the modules that are built anyway.
@Suite("Documentation of what is public (R1)", .endsWhenItHangs)
struct DocumentationTests {
    struct Symbol: Decodable {
        struct Kind: Decodable { var identifier: String }
        struct Comment: Decodable {
            struct Line: Decodable { var text: String }
            var lines: [Line]
        }

        var kind: Kind
        var pathComponents: [String]
        var docComment: Comment?
        var declarationFragments: [Fragment]?

        struct Fragment: Decodable { var spelling: String }

        var declaration: String { declarationFragments?.map(\.spelling).joined() ?? "" }

        var name: String { pathComponents.joined(separator: ".") }

        /// A first line that says something.
        var isDocumented: Bool {
            docComment?.lines.first.map { $0.text.split(separator: " ").count > 1 || $0.text.hasPrefix("`") } ?? false
        }
    }

    private struct Graph: Decodable { var symbols: [Symbol] }

    @Test("every public symbol has a summary", arguments: [("HapaxModel", 40), ("HapaxClient", 150)])
    func everySymbolIsDocumented(module: String, atLeast count: Int) async throws {
        let symbols = try await symbols(of: module)
        #expect(symbols.count >= count, "the module was read")
        #expect(symbols.filter { !$0.isDocumented }.map(\.name).sorted() == [])
    }

    @Test("a client needs server and key, or is said to have none; its configuration needs both (R1)")
    func clientNeedsServerAndKey() async throws {
        let inits = try await symbols(of: "HapaxClient").filter { $0.kind.identifier == "swift.init" }
        #expect(
            inits.filter { $0.name.hasPrefix("EventClient.init") }.map(\.declaration).sorted() == [
                "convenience init(_ configuration: EventClient.Configuration?, logger: Logger? = nil)",
                "convenience init(server: URL, writeKey: String)",
            ])
        // Written out: a default of server or key would stand here.
        #expect(
            inits.filter { $0.name.hasPrefix("EventClient.Configuration.") }.map(\.declaration).sorted() == [
                "init(server: URL, writeKey: String, queueDirectory: URL = Self.standardQueueDirectory)",
                "init?(environment: [String : String] = ProcessInfo.processInfo.environment) throws(StartError)",
            ])
    }

    @Test("control: a symbol without a comment, or with an empty one, is seen")
    func missingCommentIsSeen() throws {
        let graph = try JSONDecoder().decode(
            Graph.self,
            from: Data(
                #"""
                {"symbols": [{"kind": {"identifier": "swift.var"}, "pathComponents": ["A", "b"]},
                             {"kind": {"identifier": "swift.var"}, "pathComponents": ["c"], "docComment": {"lines": [{"text": ""}]}},
                             {"kind": {"identifier": "swift.var"}, "pathComponents": ["d"], "docComment": {"lines": [{"text": "The d."}]}}]}
                """#.utf8))
        #expect(graph.symbols.filter { !$0.isDocumented }.map(\.name) == ["A.b", "c"])
    }

    private func symbols(of module: String) async throws -> [Symbol] {
        let graph = try #require(try await BuiltModules.symbolGraphs(of: module, BuiltModules.flags)["\(module).symbols.json"])
        return try JSONDecoder().decode(Graph.self, from: graph).symbols
    }
}
#endif
