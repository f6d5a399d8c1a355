import Foundation
import HapaxModel
import TestSupport
import Testing

@Suite("Metrics, alerts and dashboard", .endsWhenItHangs)
struct MonitoringTests {
    /// Installed, or unpacked beside the build.
    private static let promtool = ["/usr/bin", "/usr/local/bin", PackageLayout.root.path + "/.build/proxies/usr/bin"].map {
        "\($0)/promtool"
    }
    .first { FileManager.default.isExecutableFile(atPath: $0) }

    private static func read(_ port: Int, _ path: String) async throws -> (status: Int, text: String) {
        let answer = try await RawHTTP.get(port: port, path: path)
        return (answer.status, String(decoding: answer.body, as: UTF8.self))
    }

    /// What a server tells of itself once it has looked at its store.
    private static func metrics(of store: String, _ directory: TemporaryDirectory) async throws -> String {
        let files = try await TestCertificate(in: directory)
        for command in [["projects", "add", "app"], ["backup", store.hasPrefix("sqlite") ? directory.path("backup") : "--done"]] {
            let child = try ChildProcess("hapax-server", command, environment: ["HAPAX_STORE": store])
            #expect(await child.waitUntilExit() == .exited(0))
        }
        let server = try ChildProcess(
            "hapax-server",
            environment: [
                "HAPAX_STORE": store, "HAPAX_PORT": "0", "HAPAX_METRICS_PORT": "0", "HAPAX_WRITE_KEYS": "shop=\(ServerUnderTest.key)",
                "HAPAX_ADMIN_KEY": "admin-key-of-all", "HAPAX_TLS_CERTIFICATE": files.certificate, "HAPAX_TLS_KEY": files.key,
            ])
        // The two lines come in any order.
        var ports: [String: Int] = [:]
        while ports.count < 2, let line = await server.nextLine() {
            for name in ["listening on https", "metrics on http"] where line.hasPrefix(name) {
                ports[name] = line.split(separator: ":").last.flatMap { Int($0.prefix { $0 != "/" }) }
            }
        }
        let port = try #require(ports["metrics on http"])
        for (path, status) in [("/health/live", 200), ("/v1/events", 404), ("/", 404), ("/v1/store", 404), ("/metrics?x=1", 200)] {
            #expect(try await read(port, path).status == status, "\(path)")
        }
        var text = ""
        while !text.contains("hapax_store_bytes") || text.contains("hapax_store_ready 0") {
            text = try await read(port, "/metrics").text
            await Task.yield()
        }
        server.terminate()
        await server.waitUntilExit()
        return text
    }

    @Test("With log-format json each line of the log is a JSON object, those of refused requests included")
    func logIsJSON() async throws {
        let directory = TemporaryDirectory()
        let server = try ChildProcess(
            "hapax-server", ["--log-format", "json"],
            environment: [
                "HAPAX_STORE": "sqlite:\(directory.path("events.sqlite"))", "HAPAX_PORT": "0",
                "HAPAX_WRITE_KEYS": "shop=\(ServerUnderTest.key)",
                "HAPAX_NONSENSE": "1",
            ])
        let port = try #require(Int(try await server.line(after: "listening on http://127.0.0.1:")))
        #expect(try await Self.read(port, "/v1/\"quoted").status == 404)
        server.terminate()
        _ = await server.waitUntilExit()
        let lines = await server.remainingErrors().split(separator: "\n").map { line in
            (try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: String]) ?? [:]
        }
        #expect(lines.count > 2 && lines.allSatisfy { $0["time"] != nil && $0["level"] != nil && $0["message"] != nil })
        #expect(lines.contains { $0["variable"] == "HAPAX_NONSENSE" && $0["level"] == "warning" })
        #expect(lines.contains { $0["problem.code"] == "not_found" && $0["http.status"] == "404" && $0["request.id"] != nil })
    }

    private static func run(_ arguments: String..., input: String? = nil) async throws -> (exit: ChildProcess.Exit, text: String) {
        let directory = TemporaryDirectory()
        let file = directory.path("input")
        try (input ?? "").write(toFile: file, atomically: true, encoding: .utf8)
        let child = try ChildProcess("/bin/sh", ["-c", "exec \"$@\" < \(file) 2>&1", "sh", try #require(promtool)] + arguments)
        let text = await child.remainingOutput()
        return (await child.waitUntilExit(), text)
    }

    @Test(
        "Every name in dashboard and alerts is one that the server tells; Prometheus' own tool finds nothing wrong with any of them",
        .enabled(if: promtool != nil, "promtool is needed: .ci/install-packages --with-proxies"))
    func namesAreThere() async throws {
        let directory = TemporaryDirectory()
        let sqlite = try await Self.metrics(of: "sqlite:\(directory.path("events.sqlite"))", directory)
        let postgres = try await Self.metrics(of: try await PostgresCluster.shared.makeDatabase(), directory)
        for text in [sqlite, postgres] {
            let checked = try await Self.run("check", "metrics", input: text)
            #expect(checked.exit == .exited(0) && checked.text.isEmpty, "\(checked.text)")
        }
        #expect(try await Self.run("check", "metrics", input: "hapax_events 1\n").text.contains("no help text"))
        let known = Set((sqlite + postgres).matches(of: /# TYPE (\S+)/).map { String($0.1) })
        #expect(
            known.isSuperset(of: [
                "hapax_months_ahead", "hapax_backup_timestamp_seconds", "hapax_disk_free_bytes", "hapax_certificate_end_timestamp_seconds",
            ]))
        let folder = PackageLayout.root.appending(path: "Monitoring").path
        for file in ["dashboard.json", "alerts.yml"] {
            let text = try String(contentsOfFile: "\(folder)/\(file)", encoding: .utf8)
            let used = Set(text.matches(of: /\b(?:hapax|process)_[a-z_]+/).map { String($0.0).replacing(/_(bucket|sum|count)$/, with: "") })
            #expect(used.count > 10 && used.subtracting(known).isEmpty, "\(file): \(used.subtracting(known))")
        }
        _ = try JSONSerialization.jsonObject(with: Data(contentsOf: URL(filePath: "\(folder)/dashboard.json")))
        for arguments in [
            ["check", "rules", "\(folder)/alerts.yml"], ["check", "config", "\(folder)/prometheus.yml"],
            ["test", "rules", "\(folder)/alerts.test.yml"],
        ] {
            let checked = try await Self.run(arguments[0], arguments[1], arguments[2])
            #expect(checked.exit == .exited(0), "\(checked.text)")
        }
        // Each alert has a test that sees it.
        let rules = try String(contentsOfFile: "\(folder)/alerts.yml", encoding: .utf8)
        let tests = try String(contentsOfFile: "\(folder)/alerts.test.yml", encoding: .utf8)
        for alert in rules.matches(of: /alert: (\S+)/) { #expect(tests.contains("alertname: \(alert.1)\n"), "\(alert.1)") }
    }
}
