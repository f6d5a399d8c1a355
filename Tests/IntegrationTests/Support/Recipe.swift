import Foundation
import TestSupport
import Testing

/// The blocks of docs/operations.md that have a name, with the very text that stands there.
enum Recipe {
    static func text(_ name: String, _ replacing: [String: String] = [:]) throws -> String {
        let page = try String(contentsOf: PackageLayout.root.appending(path: "docs/operations.md"), encoding: .utf8)
        let block = try #require(page.firstMatch(of: try Regex("```[a-z]+ \(name)\n((?:.|\n)*?)```", as: (Substring, Substring).self)))
        return replacing.reduce(String(block.output.1)) { $0.replacing($1.key, with: $1.value) }
    }

    /// Starts a recipe in a directory, where the programs are found that were built.
    static func start(_ recipe: String, in directory: TemporaryDirectory, _ environment: [String: String]) async throws -> ChildProcess {
        let programs = try await PostgresCluster.shared.programs
        let path = "\(PackageLayout.productsDirectory.path):\(programs):\(ProcessInfo.processInfo.environment["PATH"] ?? "")"
        return try ChildProcess(
            "/bin/sh", ["-ec", "cd '\(directory.path)'; \(recipe)"], environment: environment.merging(["PATH": path]) { $1 })
    }

    /// Runs a recipe where `hapax-data` lies.
    static func run(
        _ recipe: String, in directory: TemporaryDirectory, _ environment: [String: String]
    ) async throws -> (exit: ChildProcess.Exit, text: String) {
        let child = try await start(recipe, in: directory, environment)
        let text = await child.remainingOutput()
        return (await child.waitUntilExit(), text + (await child.remainingErrors()))
    }
}
