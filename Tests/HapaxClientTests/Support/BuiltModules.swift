#if os(Linux)
import Foundation
import TestSupport
import Testing

/// The package's modules as they were built beside the tests, for the compiler's tools.
enum BuiltModules {
    #if arch(arm64)
    static let target = "aarch64-unknown-linux-gnu"
    #else
    static let target = "x86_64-unknown-linux-gnu"
    #endif

    /// Where the tools find the modules, those in C included; which one belongs to which is the compiler's business.
    static var flags: [String] {
        let products = PackageLayout.productsDirectory
        let places = [
            PackageLayout.root.appending(path: "Shared"), PackageLayout.root.appending(path: "Client"),
            products.deletingLastPathComponent().deletingLastPathComponent().appending(path: "checkouts"), products,
        ]
        let maps = places.flatMap { moduleMaps(below: $0) }.flatMap { ["-Xcc", "-fmodule-map-file=" + $0] }
        return ["-I", products.appending(path: "Modules").path, "-target", target] + maps
    }

    /// What a module declares for everybody, as the compiler describes it: in a file for the module, and one for each module that it extends.
    static func symbolGraphs(of module: String, _ flags: [String]) async throws -> [String: Data] {
        let output = TemporaryDirectory()
        let process = try ChildProcess(
            "/usr/bin/env",
            [
                "swift", "symbolgraph-extract", "-module-name", module, "-minimum-access-level", "public", "-skip-synthesized-members",
                "-output-dir", output.path,
            ] + flags)
        while await process.nextLine() != nil {}
        #expect(await process.waitUntilExit() == .exited(0), "\(process.standardErrorTail)")
        let files = try FileManager.default.contentsOfDirectory(at: output.url, includingPropertiesForKeys: nil)
        return Dictionary(uniqueKeysWithValues: try files.map { ($0.lastPathComponent, try Data(contentsOf: $0)) })
    }

    /// What the compiler says of a program that uses the modules: its errors, by line.
    static func errors(of program: String) async throws -> [Int: [String]] {
        let directory = TemporaryDirectory()
        let file = directory.path("Program.swift")
        try Data(program.utf8).write(to: URL(fileURLWithPath: file))
        // The compiler speaks on standard error, of which a child keeps the end alone.
        let process = try ChildProcess(
            "/bin/sh",
            [
                "-c", #"exec "$@" 2>&1"#, "sh", "swiftc", "-typecheck", "-parse-as-library", "-swift-version", "6", "-diagnostic-style",
                "llvm",
            ]
                + flags + [file])
        let lines = await process.remainingLines()
        let succeeds = await process.waitUntilExit() == .exited(0)
        var errors: [Int: [String]] = [:]
        for line in lines {
            let parts = line.split(separator: ":", maxSplits: 4).map { $0.trimmingCharacters(in: .whitespaces) }
            guard parts.count == 5, parts[0] == file, parts[3] == "error", let number = Int(parts[1]) else { continue }
            errors[number, default: []].append(parts[4])
        }
        #expect(succeeds == errors.isEmpty, "\(lines.suffix(20).joined(separator: "\n"))")
        return errors
    }

    private static func moduleMaps(below directory: URL) -> [String] {
        let files = FileManager.default.enumerator(atPath: directory.path)?.compactMap { $0 as? String } ?? []
        return files.filter { file in
            // Not those of tools, which repeat the package's, nor those that show Swift modules to C.
            file.hasSuffix(".modulemap") && !file.contains("Tests/") && !file.contains("-tool.build/") && !file.contains(".build/include/")
        }.map { directory.path + "/" + $0 }
    }
}
#endif
