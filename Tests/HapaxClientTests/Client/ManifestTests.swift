#if os(Linux)
import Foundation
import TestSupport
import Testing

@Suite("The package's manifest", .endsWhenItHangs)
struct ManifestTests {
    @Test(
        "warnings are errors only where HAPAX_STRICT says so, and not in a package that depends on this one by path (C19)",
        arguments: ["", "1"])
    func warningsStayHere(strict: String) async throws {
        let scratch = TemporaryDirectory()
        let process = try ChildProcess(
            "/usr/bin/env",
            ["swift", "package", "--package-path", PackageLayout.root.path, "--scratch-path", scratch.path, "dump-package"],
            environment: ["HAPAX_STRICT": strict])
        let manifest = await process.remainingLines()
        #expect(await process.waitUntilExit() == .exited(0), "\(process.standardErrorTail)")
        #expect(manifest.contains { $0.contains("treatAllWarnings") } == (strict == "1"))
    }
}
#endif
