#if os(Linux)
import Foundation
import TestSupport
import Testing

/// No Apple system is here, and on Linux the compiler takes whatever its libraries have: they say themselves since when, and the index that the build
/// writes says who uses it.
@Suite("What Apple's oldest systems have (C8)", .endsWhenItHangs)
struct AvailabilityTests {
    private static let modules = [
        "Swift", "_Concurrency", "_StringProcessing", "Synchronization", "Observation", "FoundationEssentials", "Foundation",
        "FoundationInternationalization",
    ]

    /// Requirements of protocols for which older systems have another one, which the compiler takes there.
    private static let replaceable: Set = [
        "next(isolation:)", "&*(_:_:)", "enqueue(_:)", "checkIsolated()", "isIsolatingCurrentContext()",
        "isSameExclusiveExecutionContext(other:)",
    ]

    private struct Graph: Decodable {
        struct Symbol: Decodable {
            struct Identifier: Decodable { var precise: String }
            struct Names: Decodable { var title: String }
            struct Availability: Decodable {
                struct Version: Decodable { var major: Int }
                var domain: String?
                var introduced: Version?
            }
            var identifier: Identifier
            var names: Names
            var availability: [Availability]?
        }
        var symbols: [Symbol]
    }

    @Test("what client and command line use of the toolchain's libraries is there on macOS 13, which Package.swift declares")
    func whatIsUsedIsThere() async throws {
        let manifest = try String(contentsOf: PackageLayout.root.appending(path: "Package.swift"), encoding: .utf8)
        #expect(manifest.contains(".macOS(.v13)"))
        let newer = try await symbols(newerThan: 13).filter { !Self.replaceable.contains($0.value) }
        #expect(newer.values.contains("init(validating:as:)"), "control: the text that CSV once used")
        let directory = TemporaryDirectory()
        try Data(newer.keys.joined(separator: "\n").utf8).write(to: URL(filePath: directory.path("newer")))
        let records = try Self.records()
        #expect(records.count > 190)
        let search = try ChildProcess("/usr/bin/env", ["grep", "-aoFf", directory.path("newer")] + records)
        let found = await search.remainingLines().map { line in
            let parts = line.split(separator: ":", maxSplits: 1).map(String.init)
            return "\(URL(filePath: parts[0]).lastPathComponent): \(newer[parts[1]] ?? parts[1])"
        }
        #expect(await search.waitUntilExit() == .exited(1), "\(Set(found).sorted())")
    }

    /// By their names in the index.
    private func symbols(newerThan version: Int) async throws -> [String: String] {
        var newer: [String: String] = [:]
        for module in Self.modules {
            for file in try await BuiltModules.symbolGraphs(of: module, ["-target", BuiltModules.target]).values {
                let graph = try JSONDecoder().decode(Graph.self, from: file)
                for symbol in graph.symbols {
                    let since = symbol.availability?.first { $0.domain == "macOS" }?.introduced?.major ?? 0
                    if since > version { newer[symbol.identifier.precise] = symbol.names.title }
                }
            }
        }
        return newer
    }

    /// What the latest build noted of each file of the client and of what it shares with the server.
    private static func records() throws -> [String] {
        let (files, index) = (FileManager.default, PackageLayout.productsDirectory.appending(path: "index/store/v5"))
        var units: [Substring: [Data]] = [:]
        for unit in try files.contentsOfDirectory(atPath: index.appending(path: "units").path) {
            guard let end = unit.range(of: ".o-", options: .backwards)?.lowerBound, unit[..<end].hasSuffix(".swift") else { continue }
            units[unit[..<end], default: []].append(try Data(contentsOf: index.appending(path: "units/" + unit)))
        }
        var records: [Substring: [String]] = [:]
        for path in files.enumerator(atPath: index.appending(path: "records").path)?.compactMap({ $0 as? String }) ?? [] {
            let name = path.split(separator: "/").last ?? ""
            if let end = name.lastIndex(of: "-") { records[name[..<end], default: []].append(path) }
        }
        return ["Client", "Shared"].flatMap { top -> [String] in
            let sources = files.enumerator(atPath: PackageLayout.root.appending(path: top).path)?.compactMap { $0 as? String } ?? []
            return sources.filter { $0.hasSuffix(".swift") }.flatMap { source -> [String] in
                // A unit names its source and its records, of which earlier ones stay.
                let (folder, name) = ((source as NSString).deletingLastPathComponent, Substring((source as NSString).lastPathComponent))
                let own = units[name, default: []].filter { $0.range(of: Data("/\(top)/\(folder)\(name)".utf8)) != nil }
                return records[name, default: []].filter { record in
                    own.contains { $0.range(of: Data((record as NSString).lastPathComponent.utf8)) != nil }
                }
            }.map { index.appending(path: "records/" + $0).path }
        }
    }
}
#endif
