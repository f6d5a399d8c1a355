import Foundation
import TestSupport
import Testing

/// *Your first day* of docs/operations.md, line by line.
@Suite("An operator's first day", .endsWhenItHangs)
struct FirstDayTests {
    @Test("Keys, a certificate, the server, an event seen, a check, a backup and an update: the documented lines, in their order")
    func firstDayWorksAsWritten() async throws {
        let directory = TemporaryDirectory()
        var environment = ["HOME": directory.path, "HAPAX_QUEUE": directory.path("queue"), "HAPAX_LOG_LEVEL": "critical"]

        let made = try await Recipe.run(try Recipe.text("first-day-keys"), in: directory, environment)
        #expect(made.exit == .exited(0), "\(made)")
        func key(_ kind: Character) throws -> String {
            String(made.text[try #require(made.text.firstMatch(of: try Regex("hapax_\(kind)_[0-9A-Za-z]{36}"))).range])
        }
        environment["WRITE_KEY"] = try key("w")
        environment["READ_KEY"] = try key("r")
        _ = try key("a")
        #expect(try await Recipe.run(try Recipe.text("first-day-certificate"), in: directory, environment).exit == .exited(0))

        // What certbot does as root, with the certificate just made.
        let hook = try Recipe.text(
            "first-day-hook",
            [
                "sudo ": "", "/etc/letsencrypt/renewal-hooks/deploy/hapax": "hook", "-g hapax ": "", "/etc/hapax/": "installed",
                "certbot renew --force-renewal": "RENEWED_LINEAGE=renewed ./hook",
            ])
        let lineage = "mkdir renewed installed; cp certificate.pem renewed/fullchain.pem; cp key.pem renewed/privkey.pem"
        let hooked = try await Recipe.run(lineage + "\n" + hook, in: directory, environment)
        #expect(hooked.exit == .exited(0), "\(hooked)")
        for name in ["fullchain.pem", "privkey.pem"] {
            let attributes = try FileManager.default.attributesOfItem(atPath: directory.path("installed/" + name))
            #expect(attributes[.posixPermissions] as? Int == 0o640)
        }

        // Tests listen on loopback, on ports that are free; the signal is for the server, not for its shell.
        let start = try Recipe.text("first-day-start", ["0.0.0.0": "127.0.0.1", "9464": "0", "\nhapax-server\n": "\nexec hapax-server\n"])
        let server = try await Recipe.start(start, in: directory, environment.merging(["HAPAX_PORT": "0"]) { $1 })
        let port = try await server.line(after: "listening on https://127.0.0.1:")
        let sent = try await Recipe.run(try Recipe.text("first-day-send", ["8080": port]), in: directory, environment)
        #expect(sent.exit == .exited(0) && sent.text.contains("hello"), "\(sent)")

        let day: [(name: String, replacing: [String: String], exits: Set<Int32>)] = [
            // It has no backup yet, and says so.
            ("first-day-check", [:], [1]), ("first-day-backup", ["/backups": directory.path], [0]), ("first-day-update", [:], [0]),
        ]
        for step in day {
            let ran = try await Recipe.run(try Recipe.text(step.name, step.replacing), in: directory, environment)
            #expect(step.exits.contains { ran.exit == .exited($0) }, "\(step.name): \(ran)")
        }
        let copies = try FileManager.default.contentsOfDirectory(atPath: directory.path).filter { $0.hasPrefix("events-") }
        #expect(copies.count == 1)
        server.terminate()
        #expect(await server.waitUntilExit() == .exited(0))
    }
}
