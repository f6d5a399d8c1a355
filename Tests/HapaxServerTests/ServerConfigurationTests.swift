import ArgumentParser
import Foundation
import TestSupport
import Testing

@testable import HapaxServer

@Suite("Settings", .endsWhenItHangs)
struct ServerConfigurationTests {
    @Test(
        "a key that no sender can carry, or in quotation marks, is refused with its setting; the end of a line behind it is none of it",
        arguments: [
            ("HAPAX_WRITE_KEYS", #""shop=hush""#), ("HAPAX_WRITE_KEYS", #"shop="hush""#),
            ("HAPAX_WRITE_KEYS", "'shop=hush'"),
            ("HAPAX_WRITE_KEYS", "shop=hüsh"), ("HAPAX_READ_KEYS", "shop=a b"), ("HAPAX_ADMIN_KEY", "'admin'"),
            ("HAPAX_ADMIN_KEY", "a\u{1}b"),
        ])
    func unusableKeysAreRefused(name: String, value: String) throws {
        let good = ["HAPAX_WRITE_KEYS": "shop=write-key\n", "HAPAX_READ_KEYS": "shop=read-key\r\n", "HAPAX_ADMIN_KEY": "admin\n"]
        let configuration = try ServerConfiguration(flags: [:], environment: good)
        #expect(configuration.writeKeys.map(\.key) == ["write-key"] && configuration.readKeys.map(\.key) == ["read-key"])
        #expect(configuration.adminKey == "admin")
        #expect {
            try ServerConfiguration(flags: [:], environment: good.merging([name: value]) { $1 })
        } throws: { error in
            let text = "\(error)"
            return error is ServerConfiguration.Problem && text.contains(name) && !text.contains("hush") && !text.contains("hüsh")
        }
    }

    @Test("a slow link's deadlines are so many times longer; a graceful stop takes no longer for it (T1)")
    func deadlinesAreMultiplied() throws {
        let (usual, longer) = (try read().options.limits, try read(["--deadline-factor", "10"]).options.limits)
        #expect(longer.header == usual.header * 10 && longer.body == usual.body * 10 && longer.stall == usual.stall * 10)
        #expect(longer.answer == usual.answer * 10 && longer.idle == usual.idle * 10 && longer.stop == usual.stop)
        #expect(problem(["--deadline-factor", "0"])?.contains("HAPAX_DEADLINE_FACTOR") == true)
    }

    private func read(_ arguments: [String] = [], _ environment: [String: String] = [:]) throws -> ServerConfiguration {
        let command = try #require(ServerCommand.parseAsRoot(arguments) as? ServeCommand)
        return try ServerConfiguration(
            flags: command.settings.flags, environment: ["HAPAX_WRITE_KEYS": "shop=a-long-key"].merging(environment) { $1 })
    }

    private func problem(_ arguments: [String] = [], _ environment: [String: String] = [:]) -> String? {
        do {
            _ = try read(arguments, environment)
            return nil
        } catch {
            return error is ServerConfiguration.Problem ? "\(error)" : ServerCommand.message(for: error)
        }
    }

    @Test("Defaults: loopback, 8080, a SQLite file, two writers")
    func defaults() throws {
        let configuration = try read()
        #expect(configuration.options.host == "127.0.0.1")
        #expect(configuration.options.port == 8080)
        #expect(configuration.store == .sqlite(path: "hapax-data/events.sqlite"))
        #expect(configuration.postgres.writers == 2)
        #expect(!configuration.postgres.unsafeAllowNonDurableStore)
        #expect(configuration.writeKeys == [.init(project: "shop", key: "a-long-key")])
    }

    @Test("Flags win over the environment, the environment over the file")
    func precedence() throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "hapax-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: file) }
        try Data(#"{"port": 3, "host": "127.0.0.3", "postgres-writers": 5}"#.utf8).write(to: file)
        let configuration = try read(
            ["--port", "1", "--config=\(file.path)"], ["HAPAX_PORT": "2", "HAPAX_HOST": "127.0.0.2"])
        #expect(configuration.options.port == 1)
        #expect(configuration.options.host == "127.0.0.2")
        #expect(configuration.postgres.writers == 5)
    }

    @Test("What can be guessed is refused off loopback: the public key, the placeholder of .env.example, fewer than 16 bytes")
    func guessableKeysAreRefusedOffLoopback() throws {
        let off = ["--host", "0.0.0.0", "--plain"]
        for (key, word) in [("demo", "public key"), ("replace-this-write-key", "placeholder"), ("123456789012345", "fewer than 16 bytes")] {
            #expect(problem(off, ["HAPAX_WRITE_KEYS": "shop=\(key)"])?.contains(word) == true, "\(key)")
            #expect(problem(off + ["--admin-key", key], ["HAPAX_WRITE_KEYS": "shop=1234567890123456"])?.contains(word) == true)
            #expect(problem([], ["HAPAX_WRITE_KEYS": "shop=\(key)"]) == nil)
        }
        #expect(problem(off + ["--admin-key", "abcdefghijklmnop"], ["HAPAX_WRITE_KEYS": "shop=1234567890123456"]) == nil)
        #expect(problem(["--admin-key", "k"], ["HAPAX_WRITE_KEYS": "shop=k"])?.contains("in every app") == true)
    }

    @Test(".env.example with its keys replaced, and each of its commented lines uncommented, is good off loopback (S26)")
    func exampleIsGood() throws {
        let example = try String(contentsOf: PackageLayout.root.appending(path: ".env.example"), encoding: .utf8)
        let settings = example.matches(of: /(?m)^#?(HAPAX_[A-Z_]+)=(.*)$/).map {
            (String($0.1), String($0.2).replacing("replace-this-", with: "a-real-"))
        }
        let environment = Dictionary(settings) { $1 }
        #expect(environment.count == 6 && problem(["--host", "0.0.0.0", "--plain"], environment) == nil)
    }

    @Test("Read keys are read like write keys, and no key is of two kinds")
    func readKeysAreKeysOfTheirOwn() throws {
        #expect(try read().readKeys.isEmpty)
        #expect(
            try read([], ["HAPAX_READ_KEYS": "shop=r1, app=r2"]).readKeys == [
                .init(project: "shop", key: "r1"), .init(project: "app", key: "r2"),
            ])
        let off = ["--host", "0.0.0.0", "--plain", "--write-keys", "shop=1234567890123456", "--read-keys"]
        #expect(problem(off + ["shop=demo-read"])?.contains("public key demo-read") == true)
        #expect(problem(off + ["shop=short"])?.contains("HAPAX_READ_KEYS (--read-keys) holds a key of fewer than 16 bytes") == true)
        #expect(problem(off + ["shop=abcdefghijklmnop"]) == nil)
        for (arguments, says) in [
            (["--read-keys", "shop"], "must be PROJECT=KEY"), (["--read-keys", "a=r,b=r"], "gives one key twice"),
            (["--read-keys", "shop=a-long-key"], "holds a write key"),
            (["--read-keys", "shop=r", "--admin-key", "r"], "is a read key as well"),
        ] {
            #expect(problem(arguments)?.contains(says) == true, "\(arguments)")
        }
    }

    @Test("Time zones are names of the time zone database, one for a project")
    func timeZonesAreChecked() throws {
        let zones = try read(["--time-zones", "shop=Europe/Berlin,app=Asia/Kolkata"]).timeZones
        #expect(zones == [.init(project: "shop", zone: "Europe/Berlin"), .init(project: "app", zone: "Asia/Kolkata")])
        for (text, says) in [
            ("shop", "must be PROJECT=ZONE"), ("shop=Mars/Olympus", "does not hold: Mars/Olympus"), ("a=UTC,a=UTC", "two zones"),
        ] {
            #expect(problem(["--time-zones", text])?.contains(says) == true, "\(text)")
        }
    }

    @Test("The public key works on loopback only")
    func publicKeyIsRefusedOffLoopback() throws {
        let demo = ["HAPAX_WRITE_KEYS": "demo=demo"]
        for host in ["127.0.0.1", "localhost", "::1", "127.9.9.9"] {
            #expect(problem(["--host", host], demo) == nil)
        }
        for host in ["0.0.0.0", "::", "192.0.2.1", "example.org", "127.evil.example"] {
            #expect(problem(["--host", host, "--plain"], demo)?.contains("loopback") == true, "\(host)")
        }
    }

    @Test("Off loopback the server needs a certificate, or a word that a proxy speaks TLS; a certificate has its key")
    func plainHTTPStaysHome() throws {
        let (off, pair) = (
            ["--host", "0.0.0.0", "--write-keys", "shop=1234567890123456"], ["--tls-certificate", "c.pem", "--tls-key", "k.pem"]
        )
        #expect(problem(off)?.contains("HAPAX_TLS_CERTIFICATE and HAPAX_TLS_KEY, or HAPAX_PLAIN=true") == true)
        #expect(problem(off, ["HAPAX_PLAIN": "false"]) != nil && problem(off, ["HAPAX_PLAIN": "maybe"])?.contains("true or false") == true)
        #expect(problem(off, ["HAPAX_PLAIN": "true"]) == nil)
        #expect(try read(off + pair).options.certificate == CertificateFiles(certificate: "c.pem", key: "k.pem"))
        #expect(problem(Array(pair[0...1]))?.contains("HAPAX_TLS_KEY (--tls-key) must be set as well") == true)
        #expect(problem(Array(pair[2...3]))?.contains("HAPAX_TLS_CERTIFICATE (--tls-certificate) must be set as well") == true)
    }

    @Test("Of X-Forwarded-For counts what a trusted proxy has heard, and nothing that a client made up (table)")
    func onlyTrustedProxiesAreBelieved() throws {
        for (trusted, peer, forwarded, client) in [
            ("", "192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1", ["198.51.100.7"], "198.51.100.7"),
            ("192.0.2.0/24", "192.0.2.1", ["1.2.3.4, 198.51.100.7"], "198.51.100.7"),
            ("192.0.2.0/24, 10.0.0.0/8", "192.0.2.1", ["1.2.3.4, 198.51.100.7", "10.1.2.3"], "198.51.100.7"),
            ("192.0.2.0/31", "192.0.2.2", ["198.51.100.7"], "192.0.2.2"),
            ("192.0.2.1", "::ffff:192.0.2.1", ["198.51.100.7:4711"], "198.51.100.7"),
            ("2001:db8::/32", "2001:db8::1", ["[2001:DB9::7]:4711"], "2001:db9::7"),
            ("192.0.2.1", "192.0.2.1", ["198.51.100.7, nonsense\"\u{1B}[31m"], "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1", [""], "192.0.2.1"), ("0.0.0.0/0", "192.0.2.1", ["2001:db8::1"], "2001:db8::1"),
            ("0.0.0.0/0", "192.0.2.1", ["198.51.100.7"], "198.51.100.7"),
        ] {
            #expect(try #require(TrustedProxies(trusted)).client(of: peer, forwarded: forwarded) == client, "\(trusted) \(forwarded)")
        }
        for text in ["x", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "::/129", "10.0.0.0/-1"] {
            #expect(problem(["--trusted-proxies", text])?.contains("HAPAX_TRUSTED_PROXIES") == true, "\(text)")
        }
    }

    @Test("A value that is there is used or refused, never replaced by the default: commas, repeats, types")
    func noValueFallsBackToItsDefault() throws {
        let uri = "postgres://hapax@127.0.0.1:5432,127.0.0.1:5433/events"
        #expect(try read(["--store", uri]).store == .postgres(uri: uri))
        #expect(try read(["--store=\(uri)"]).store == .postgres(uri: uri))
        #expect(try read(["--write-keys", "a=k1,b=k2"]).writeKeys.map(\.project) == ["a", "b"])
        #expect(try read(["serve", "--port", "1"]).options.port == 1)
        #expect(problem(["--maximum-connections", "5,6"])?.contains("must be a number") == true)
        let file = FileManager.default.temporaryDirectory.appending(path: "hapax-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: file) }
        for (text, says) in [
            (#"{"store": 5}"#, "must be sqlite:PATH"), (#"{"store": ["sqlite:x"]}"#, "must be a string"),
            (#"{"prot": 1}"#, "unknown setting prot"),
            (#"[1]"#, "JSON object"),
        ] {
            try Data(text.utf8).write(to: file)
            #expect(problem(["--config", file.path])?.contains(says) == true, "\(text)")
        }
    }

    @Test(
        "A secret may stand in a file, one of several on each line; given twice, or in a file that is not there, it is refused with its setting"
    )
    func secretsStandInFiles() throws {
        let directory = TemporaryDirectory()
        func file(_ name: String, _ text: String) throws -> String {
            try Data(text.utf8).write(to: URL(fileURLWithPath: directory.path(name)))
            return directory.path(name)
        }
        let environment = [
            "HAPAX_WRITE_KEYS": "", "HAPAX_WRITE_KEYS_FILE": try file("write", "shop=w1\napp=w2\n"),
            "HAPAX_READ_KEYS_FILE": try file("read", "shop=r1\n"), "HAPAX_ADMIN_KEY_FILE": try file("admin", "a\n"),
            "HAPAX_STORE_FILE": try file("store", "postgres://u:p@h/d\n"),
        ]
        let configuration = try read([], environment)
        #expect(configuration.writeKeys.map(\.project) == ["shop", "app"] && configuration.readKeys.map(\.key) == ["r1"])
        #expect(configuration.adminKey == "a" && configuration.store == .postgres(uri: "postgres://u:p@h/d"))
        #expect(configuration.unknownVariables.isEmpty)
        #expect(
            problem([], environment.merging(["HAPAX_ADMIN_KEY": "b"]) { $1 })?.contains("HAPAX_ADMIN_KEY (--admin-key) is set twice")
                == true)
        #expect(problem([], ["HAPAX_READ_KEYS_FILE": "/does/not/exist"])?.contains("HAPAX_READ_KEYS (--read-keys) cannot be read") == true)
    }

    @Test("Variables that look like settings and are none are named, for a warning")
    func unknownVariablesAreNamed() throws {
        let configuration = try read([], ["HAPAX_STROE": "x", "HAPAX_SERVER": "http://x", "PATH": "/bin"])
        #expect(configuration.unknownVariables == ["HAPAX_STROE"])
    }

    @Test(
        "What cannot be used is refused with the reason",
        arguments: [
            (["--port", "65536"], "from 0 to 65535"), (["--port", "x"], "from 0 to 65535"), (["--store", "mysql://x"], "sqlite:PATH"),
            (["--store", "sqlite:"], "sqlite:PATH"), (["--store", ""], "sqlite:PATH"), (["--host", ""], "must be an address"),
            (["--write-keys", "shop"], "must be PROJECT=KEY"), (["--write-keys", "=k"], "must be PROJECT=KEY"),
            (["--write-keys", "shop=hapax_w_0123"], "mistyped key"), (["--write-keys", "a=k,b=k"], "gives one key twice"),
            (["--postgres-writers", "17"], "from 1 to 16"), (["--log-level", "loud"], "not a log level"),
            (["--prot", "1"], "Unknown option '--prot'"), (["--port"], "Missing value for '--port"),
            (["stray"], "Unexpected argument 'stray'"),
            (["--config", "/does/not/exist.json"], "cannot be read"),
        ])
    func unusableSettingsAreRefused(arguments: [String], says: String) {
        #expect(problem(arguments)?.contains(says) == true)
    }

    @Test("No key and no connection string in what a refusal says (I14)")
    func refusalsKeepSecrets() {
        for arguments in [["--store", "mysql://u:hunter2@h"], ["--write-keys", "a=hunter2,b=hunter2"], ["--write-keys", "hunter2"]] {
            let text = problem(arguments)
            #expect(text != nil)
            #expect(text?.contains("hunter2") == false)
        }
    }

    @Test("The help names every setting, its environment variable and its default")
    func helpNamesEverySetting() {
        let help = ServerCommand.helpMessage(for: ServeCommand.self, columns: 200)
        for setting in ServerSetting.all {
            #expect(help.contains("--\(setting.name)") && help.contains("[\(setting.environmentName)]"), "\(setting.name)")
            if let text = setting.defaultText { #expect(help.contains(text)) }
        }
    }
}
