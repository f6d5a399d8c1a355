import Foundation
import HapaxModel
import TestSupport
import Testing

@Suite("TLS, as people run it", .endsWhenItHangs)
struct TLSTests {
    /// A server with TLS, and what its clients need.
    private struct SecureServer {
        let directory = TemporaryDirectory()
        let process: ChildProcess
        let port: Int
        let files: TestCertificate

        /// - Parameter hasAuthority: Whether the certificate is followed by that of the authority that has issued it.
        init(hasAuthority: Bool = false) async throws {
            let authority = hasAuthority ? try await TestCertificate(in: directory, named: "authority") : nil
            files = try await TestCertificate(in: directory, issuedBy: authority)
            if let authority { try Self.append(authority.certificate, to: files.certificate) }
            process = try ChildProcess(
                "hapax-server",
                environment: [
                    "HAPAX_STORE": "sqlite:\(directory.path)/events.sqlite", "HAPAX_PORT": "0", "HAPAX_HOST": "0.0.0.0",
                    "HAPAX_WRITE_KEYS": "shop=\(Self.key)", "HAPAX_ADMIN_KEY": Self.adminKey,
                    "HAPAX_TLS_CERTIFICATE": files.certificate, "HAPAX_TLS_KEY": files.key,
                ])
            port = try #require(Int(try await process.line(after: "listening on https://0.0.0.0:")))
        }

        private static func append(_ path: String, to file: String) throws {
            let chain = try String(contentsOfFile: file, encoding: .utf8) + String(contentsOfFile: path, encoding: .utf8)
            try chain.write(toFile: file, atomically: true, encoding: .utf8)
        }

        static let (key, adminKey) = ("write-key-of-shop", "admin-key-of-all")

        func curl(_ arguments: String...) async throws -> (text: String, status: ChildProcess.Exit) {
            let curl = try ChildProcess("/usr/bin/env", ["curl", "-sS", "--cacert", files.certificate] + arguments)
            return (await curl.remainingOutput(), await curl.waitUntilExit())
        }

        func metrics() async throws -> String {
            try await curl("-H", "Authorization: Bearer \(Self.adminKey)", "https://127.0.0.1:\(port)/metrics").text
        }

        /// The name in the certificate of a connection that begins now.
        func servedName() async throws -> String {
            let command = "openssl s_client -connect 127.0.0.1:\(port) </dev/null 2>/dev/null | openssl x509 -noout -subject"
            return try await ChildProcess("/bin/sh", ["-c", command]).remainingOutput().filter { !$0.isWhitespace }
        }
    }

    @Test(
        "Events are sent and read over TLS 1.2 and 1.3, not over 1.1 or in the clear; a client that does not trust the certificate keeps them"
    )
    func clientsSpeakTLS() async throws {
        let server = try await SecureServer()
        let url = "https://127.0.0.1:\(server.port)"
        func hapax(_ arguments: String..., trusts: Bool) async throws -> (ChildProcess.Exit, String) {
            let hapax = try ChildProcess(
                "hapax", arguments,
                environment: [
                    "HAPAX_SERVER": url, "HAPAX_KEY": SecureServer.key, "HAPAX_QUEUE": server.directory.path("queue"),
                    "SSL_CERT_FILE": trusts ? server.files.certificate : "",
                ])
            return (await hapax.waitUntilExit(), await hapax.remainingErrors())
        }
        #expect(try await hapax("track", "order_paid", trusts: false).0 == .exited(0))
        let (status, says) = try await hapax("flush", trusts: false)
        #expect(status == .exited(2) && says.contains("TLS failed"), "\(says)")
        #expect(try await hapax("flush", trusts: true).0 == .exited(0))
        #expect(try await server.metrics().contains(#"hapax_events_total{project="shop",outcome="stored"} 1"#))
        for (arguments, code) in [
            (["--tls-max", "1.2"], 0), (["--tlsv1.3"], 0), (["--http2"], 0),
            (["--tlsv1.0", "--tls-max", "1.1", "--ciphers", "ALL@SECLEVEL=0"], 35),
        ] as [([String], Int32)] {
            let process = try ChildProcess(
                "/usr/bin/env",
                ["curl", "-s", "--cacert", server.files.certificate] + arguments + ["-w", "%{http_version}\\n", "\(url)/health/live"])
            let answer = await process.remainingOutput()
            #expect(await process.waitUntilExit() == .exited(code), "\(arguments)")
            #expect(answer == (code == 0 ? #"{"status":"live"}1.1"# : "0") + "\n", "\(arguments): \(answer)")
        }
        #expect(try await server.curl("http://127.0.0.1:\(server.port)/health/live").status != .exited(0))
        server.process.terminate()
        #expect(await server.process.waitUntilExit() == .exited(0))
    }

    @Test("A new certificate is taken without a restart, at SIGHUP or by itself; files that do not fit change nothing and are reported")
    func certificateIsReplaced() async throws {
        let server = try await SecureServer()
        let new = try await TestCertificate(in: server.directory, named: "new")
        func put(_ from: String, at path: String) throws {
            // As certbot does: a name changes its file in one step.
            try FileManager.default.copyItem(atPath: from, toPath: "\(path).new")
            #expect(rename("\(path).new", path) == 0)
        }
        #expect(try await server.servedName() == "subject=CN=server")
        let old = server.directory.path("old.pem")
        try FileManager.default.copyItem(atPath: server.files.certificate, toPath: old)
        try put(new.certificate, at: server.files.certificate)
        server.process.kill(SIGHUP)
        func differs() async throws -> Bool {
            let curl = try ChildProcess(
                "/usr/bin/env",
                [
                    "curl", "-sSk", "-H", "Authorization: Bearer \(SecureServer.adminKey)", "https://127.0.0.1:\(server.port)/metrics",
                ])
            return await curl.remainingOutput().contains("\nhapax_certificate_differs_from_files 1\n")
        }
        while try await !differs() {}
        #expect(try await server.servedName() == "subject=CN=server")
        #expect(server.process.standardErrorTail.contains("does not belong to the certificate"))
        try put(new.key, at: server.files.key)
        // Nothing tells it.
        while try await differs() {}
        #expect(try await server.servedName() == "subject=CN=new")
        server.process.terminate()
        #expect(await server.process.waitUntilExit() == .exited(0))
    }

    @Test("A renewed certificate without those that follow it is taken, and log and check say that they are missing (A20)")
    func shorterChainIsReported() async throws {
        let server = try await SecureServer(hasAuthority: true)
        func check() async throws -> String {
            let check = try ChildProcess(
                "hapax-server", ["check"],
                environment: [
                    "HAPAX_STORE": "sqlite:\(server.directory.path)/events.sqlite", "HAPAX_TLS_CERTIFICATE": server.files.certificate,
                    "HAPAX_TLS_KEY": server.files.key,
                ])
            return await check.remainingOutput()
        }
        #expect(try await check().contains("ok    certificate"))
        let whole = try String(contentsOfFile: server.files.certificate, encoding: .utf8)
        let end = "-----END CERTIFICATE-----\n"
        let own = try #require(whole.components(separatedBy: end).first) + end
        try own.write(toFile: server.files.certificate, atomically: true, encoding: .utf8)
        server.process.kill(SIGHUP)
        while !server.process.standardErrorTail.contains("fewer certificates than before") { await Task.yield() }
        #expect(try await check().contains("alone in its file"))
        server.process.terminate()
        #expect(await server.process.waitUntilExit() == .exited(0))
    }

    @Test("A certificate that cannot be used ends the start with what is wrong")
    func wrongFilesEndTheStart() async throws {
        let directory = TemporaryDirectory()
        let (one, other) = (
            try await TestCertificate(in: directory, named: "one"), try await TestCertificate(in: directory, named: "other")
        )
        for (certificate, key, says) in [
            (one.certificate, other.key, "does not belong"), (one.certificate, directory.path("none"), "cannot be read"),
            (one.key, one.key, "holds no certificate"),
        ] {
            let server = try ChildProcess(
                "hapax-server",
                environment: [
                    "HAPAX_STORE": "sqlite:\(directory.path)/events.sqlite", "HAPAX_PORT": "0", "HAPAX_TLS_CERTIFICATE": certificate,
                    "HAPAX_TLS_KEY": key,
                ])
            #expect(await server.waitUntilExit() == .exited(64))
            #expect(await server.remainingErrors().contains(says), "\(says)")
        }
    }
}
