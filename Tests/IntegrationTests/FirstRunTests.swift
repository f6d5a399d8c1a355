import Foundation
import TestSupport
import Testing

/// `make run` as a newcomer sees it, with a compiler that only says what SwiftPM says.
@Suite("make run", .endsWhenItHangs)
struct FirstRunTests {
    /// A checkout with a name that a shell must have quoted.
    private struct Checkout {
        let directory = TemporaryDirectory("it's a first run")

        init() throws {
            for name in ["Makefile", ".ci"] {
                try FileManager.default.copyItem(at: PackageLayout.root.appending(path: name), to: directory.url.appending(path: name))
            }
            let compiler = """
                #!/bin/sh
                for step in $(seq 1 2000); do echo "[$step/2000] Compiling Module File.swift"; done
                [ -z "$BROKEN" ] || { printf 'a.swift:1:1: error: there is no such thing\\n1 | one\\n[2001/2001] more\\n'; exit 1; }
                mkdir -p .build/debug && ln -sf "\(PackageLayout.productsDirectory.path)/$3" .build/debug/
                """
            try compiler.write(toFile: directory.path("swift"), atomically: true, encoding: .utf8)
        }

        func run(port: Int, _ environment: [String: String] = [:]) throws -> ChildProcess {
            try ChildProcess(
                "/usr/bin/env", ["make", "-C", directory.path, "run", "SWIFT=sh ./swift"],
                environment: environment.merging(["HAPAX_PORT": "\(port)", "HAPAX_LOG_LEVEL": "critical"]) { $1 })
        }
    }

    @Test("A12: it builds both programs, says how far it is in one line for each, and prints the next command, which works as printed")
    func nextCommandWorks() async throws {
        let checkout = try Checkout()
        // The port after it is no outgoing connection's, which would be taken and yet not answer.
        let port = try LoopbackPort.unused()
        let run = try checkout.run(port: port)
        _ = try await run.line(after: "listening on http://127.0.0.1:\(port)")
        _ = try await run.line(after: "send an event, in another terminal:")
        let next = try #require(await run.nextLine())
        let progress = run.standardErrorTail
        #expect(progress.contains("building hapax-server") && progress.contains("building hapax (2 of 2") && progress.contains("50 %"))
        #expect(progress.split(separator: "\n").count <= 3 && !progress.contains("Compiling"), "\(progress)")
        // In another directory, and after it every command that the README's Start names; `tail` would wait for more.
        let readme = try String(contentsOf: PackageLayout.root.appending(path: "README.md"), encoding: .utf8)
        let start = try #require(readme.components(separatedBy: "\n## ").first { $0.hasPrefix("Start\n") })
        let commands = start.matches(of: /`(hapax [^`]+)`/).map { String($0.output.1) }.filter { $0 != "hapax tail" }
        #expect(commands.count == 4)
        let elsewhere = TemporaryDirectory()
        let typed = (["\(next) >id"] + commands).joined(separator: "; ").replacing(" ID", with: " $(cat id)")
        let shell = try ChildProcess(
            "/bin/sh", ["-ec", "cd \"$0\"; \(typed)", elsewhere.path], environment: ["HAPAX_QUEUE": elsewhere.path("queue")])
        let output = await shell.remainingOutput()
        let complaints = await shell.remainingErrors()
        #expect(await shell.waitUntilExit() == .exited(0), "\(complaints)")
        #expect(output.matches(of: /hello/).count >= 2, "\(output)")

        // The taken port, found before the build and by the server itself, is answered with what to type.
        let other = try Checkout()
        var third: ChildProcess?
        // Beside other tests the port that is named may be taken before it is used.
        for _ in 0..<10 where third == nil {
            let second = try other.run(port: port)
            #expect(await second.waitUntilExit() != .exited(0))
            let told = try #require(
                await second.remainingErrors().firstMatch(of: /port \d+ of 127.0.0.1 is taken.*: (HAPAX_PORT=\d+ make run)/))
            let next = try ChildProcess("/bin/sh", ["-c", "cd \"$0\" && \(told.1) SWIFT='sh ./swift'", other.directory.path])
            if (try? await next.line(after: "listening on http://127.0.0.1:\(told.1.filter(\.isNumber))")) != nil { third = next }
        }
        #expect(third != nil)
        let server = try ChildProcess(
            "hapax-server", environment: ["HAPAX_PORT": "\(port)", "HAPAX_STORE": "sqlite:\(other.directory.path("events.sqlite"))"])
        #expect(await server.waitUntilExit() == .exited(1))
        #expect(await server.remainingErrors().contains(/port \d+ of 127.0.0.1 is taken: .* take another one with HAPAX_PORT=\d/))
    }

    @Test("A12: where the compiler fails its errors are shown, and not its thousand lines")
    func errorsAreShown() async throws {
        let checkout = try Checkout()
        let run = try checkout.run(port: 0, ["BROKEN": "1"])
        #expect(await run.waitUntilExit() != .exited(0))
        let errors = await run.remainingErrors()
        #expect(errors.contains("a.swift:1:1: error: there is no such thing\n1 | one\n") && errors.contains(".build/programs.log"))
        #expect(!errors.contains("Compiling"), "\(errors)")
    }
}
