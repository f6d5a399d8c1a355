import Foundation
import HapaxModel
import TestSupport
import Testing

/// The proxies of docs/operations.md, with the very text that stands there.
@Suite("Behind a proxy", .endsWhenItHangs)
struct ProxyTests {
    enum Proxy: String, CaseIterable {
        case nginx, caddy

        /// Installed, or unpacked beside the build.
        var program: String? {
            let unpacked = PackageLayout.root.path + "/.build/proxies"
            return ["/usr/sbin", "/usr/bin", "\(unpacked)/usr/sbin", "\(unpacked)/usr/bin"].map { "\($0)/\(rawValue)" }
                .first { FileManager.default.isExecutableFile(atPath: $0) }
        }

        static var areMissing: Bool { allCases.contains { $0.program == nil } }
    }

    /// The example, with the ports and files of this test.
    private static func example(_ proxy: Proxy, server: Int, listens: Int, _ files: TestCertificate) throws -> String {
        let page = try String(contentsOf: PackageLayout.root.appending(path: "docs/operations.md"), encoding: .utf8)
        let block = try #require(
            page.components(separatedBy: "```\(proxy.rawValue)\n").dropFirst().first?.components(separatedBy: "```").first)
        let replaced = [
            "127.0.0.1:8080": "127.0.0.1:\(server)", "listen 443 ssl": "listen 127.0.0.1:\(listens) ssl",
            "server_name events.example.org;": "",
            "/etc/letsencrypt/live/events.example.org/fullchain.pem": files.certificate,
            "/etc/letsencrypt/live/events.example.org/privkey.pem": files.key,
            "events.example.org {": "https://127.0.0.1:\(listens) {\ntls \(files.certificate) \(files.key)\n",
        ]
        return replaced.reduce(block) { $0.replacing($1.key, with: $1.value) }
    }

    private static func start(_ proxy: Proxy, _ example: String, in directory: TemporaryDirectory) throws -> ChildProcess {
        let file = directory.path("\(proxy.rawValue).conf")
        let program = try #require(proxy.program)
        switch proxy {
        case .nginx:
            let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map { "\($0)_temp_path \(directory.path($0));" }
            let user = getuid() == 0 ? "user root;" : ""
            try """
            daemon off; \(user) pid \(directory.path("nginx.pid")); events {}
            http { access_log off; \(paths.joined(separator: " ")) \(example) }
            """.write(toFile: file, atomically: true, encoding: .utf8)
            return try ChildProcess(program, ["-e", "stderr", "-c", file])
        case .caddy:
            try "{\nadmin off\nauto_https disable_redirects\n}\n\(example)".write(toFile: file, atomically: true, encoding: .utf8)
            return try ChildProcess(
                program, ["run", "--config", file, "--adapter", "caddyfile"],
                environment: ["XDG_DATA_HOME": directory.path, "XDG_CONFIG_HOME": directory.path, "HOME": directory.path])
        }
    }

    @Test(
        "A rolling update of the documented three servers behind nginx: each request is answered with 200, each event is stored once (I1, I2)",
        .enabled(if: !Proxy.areMissing, "nginx is needed: .ci/install-packages --with-proxies"))
    func rollingUpdateIsNotNoticed() async throws {
        let (directory, store) = (TemporaryDirectory(), try await PipelineStore(.postgres))
        var servers: [ServerUnderTest] = []
        for _ in 0..<3 { servers.append(try await ServerUnderTest.start(store)) }
        let addresses = Dictionary(uniqueKeysWithValues: servers.enumerated().map { ("10.0.0.\($0 + 1):8080", "127.0.0.1:\($1.port)") })
        // The documented server block, without TLS and at the root.
        let listens = try LoopbackPort.unused()
        let files = try await TestCertificate(in: directory)
        let block = try Self.example(.nginx, server: 0, listens: listens, files)
        let server = try #require(block.range(of: "server {\n    listen").map { String(block[$0.lowerBound...]) })
            .replacing(" ssl;", with: ";").replacing("location /hapax/", with: "location /")
            .split(separator: "\n").filter { !$0.contains("ssl_certificate") }.joined(separator: "\n")
        let nginx = try Self.start(.nginx, try Recipe.text("several-servers", addresses) + server, in: directory)
        while (try? await RawHTTP.get(port: listens, path: "/health/ready"))?.status != 200 { await Task.yield() }

        let load = SteadyLoad { [listens] }
        async let running: Void = load.run()
        for (index, server) in servers.enumerated() {
            await load.wait(for: 100)
            #expect(await server.stop() == .exited(0))
            await load.wait(for: 100)
            servers[index] = try await ServerUnderTest.start(store, port: server.port)
            while try await RawHTTP.get(port: server.port, path: "/health/ready").status != 200 { await Task.yield() }
            // nginx counts in whole seconds.
            let isAskedAgain = ContinuousClock.now + .seconds(3)
            await load.wait { $0.latest.map { $0 > isAskedAgain } ?? false }
        }
        await load.wait(for: 100)
        load.stop()
        await running
        let books = load.books
        #expect(books.unanswered == 0 && books.statuses == [200: books.acknowledged.count], "\(books.statuses) \(nginx.standardErrorTail)")
        #expect(try await store.rows().count == books.acknowledged.count)
        nginx.terminate()
        _ = await nginx.waitUntilExit()
        for server in servers { await server.stop() }
    }

    @Test(
        "Behind the documented nginx and Caddy, under a path: events arrive, the live stream passes at once, refusals stay ours, addresses are real",
        .enabled(if: !Proxy.areMissing, "nginx and caddy are needed: .ci/install-packages --with-proxies"), arguments: Proxy.allCases)
    func documentedProxyWorks(proxy: Proxy) async throws {
        let directory = TemporaryDirectory()
        let files = try await TestCertificate(in: directory)
        let (key, readKey) = ("write-key-of-shop", "read-key-of-shop")
        let server = try ChildProcess(
            "hapax-server",
            environment: [
                "HAPAX_STORE": "sqlite:\(directory.path)/events.sqlite", "HAPAX_PORT": "0", "HAPAX_TRUSTED_PROXIES": "127.0.0.1",
                "HAPAX_WRITE_KEYS": "shop=\(key)", "HAPAX_READ_KEYS": "shop=\(readKey)",
            ])
        let port = try #require(Int(try await server.line(after: "listening on http://127.0.0.1:")))
        let listens = try LoopbackPort.unused()
        let running = try Self.start(proxy, try Self.example(proxy, server: port, listens: listens, files), in: directory)
        let url = "https://127.0.0.1:\(listens)/hapax/"
        func curl(_ arguments: String...) throws -> ChildProcess {
            // From an address that is not the proxy's.
            try ChildProcess(
                "/usr/bin/env",
                ["curl", "-sS", "--interface", "127.0.0.2", "--retry", "100", "--retry-connrefused", "--cacert", files.certificate]
                    + arguments)
        }
        #expect(try await curl(url).remainingOutput().contains("<title>"), "\(running.standardErrorTail)")
        let stream = try curl("-N", "-H", "Authorization: Bearer \(readKey)", "\(url)v1/live")
        #expect(await stream.nextLine() == ": this server, from now on")
        for command in [["track", "order_paid"], ["flush"]] {
            let hapax = try ChildProcess(
                "hapax", command,
                environment: [
                    "HAPAX_SERVER": url, "HAPAX_KEY": key, "HAPAX_QUEUE": directory.path("queue"), "SSL_CERT_FILE": files.certificate,
                ])
            let (status, errors) = (await hapax.waitUntilExit(), await hapax.remainingErrors())
            #expect(status == .exited(0), "\(errors)")
        }
        // The stream is still open: nothing has held its rows back. It tells rates, too.
        while try await !stream.line(after: "data: ").contains("order_paid") {}
        stream.terminate()
        // 1.5 MB is more than the server takes, and less than nginx does, which reads it first. With Caddy curl and the server's early refusal race.
        try Data(repeating: 0x20, count: 1_500_000).write(to: URL(filePath: directory.path("large")))
        let (body, code) = proxy == .nginx ? ("@\(directory.path("large"))", "body_too_large") : ("{", "malformed")
        let refused = try curl(
            "-H", "Authorization: Bearer \(key)", "-H", "Content-Type: application/json", "-H", "X-Forwarded-For: 198.51.100.7",
            "--data-binary", body, "-w", "\\n", "\(url)v1/events")
        let refusal = await refused.remainingOutput()
        #expect(refusal.contains(code), "\(refusal)")
        while !server.standardErrorTail.contains("client.address=127.0.0.2") { await Task.yield() }
        #expect(!server.standardErrorTail.contains("198.51.100.7"))
        for process in [running, server] {
            process.terminate()
            await process.waitUntilExit()
        }
    }
}
