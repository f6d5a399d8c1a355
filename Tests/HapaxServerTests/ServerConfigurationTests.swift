import Foundation
import Testing

@testable import HapaxServer

@Suite("Settings")
struct ServerConfigurationTests {
    private func read(_ arguments: [String] = [], _ environment: [String: String] = [:]) async throws -> ServerConfiguration {
        try await ServerConfiguration(
            arguments: arguments, environment: ["HAPAX_WRITE_KEYS": "shop=a-long-key"].merging(environment) { $1 })
    }

    private func problem(_ arguments: [String] = [], _ environment: [String: String] = [:]) async -> String? {
        do {
            _ = try await read(arguments, environment)
            return nil
        } catch {
            return "\(error)"
        }
    }

    @Test("Defaults: loopback, 8080, a SQLite file, two writers")
    func defaults() async throws {
        let configuration = try await read()
        #expect(configuration.options.host == "127.0.0.1")
        #expect(configuration.options.port == 8080)
        #expect(configuration.store == .sqlite(path: "hapax-data/events.sqlite"))
        #expect(configuration.postgres.writers == 2)
        #expect(!configuration.postgres.unsafeAllowNonDurableStore)
        #expect(configuration.writeKeys == [.init(project: "shop", key: "a-long-key")])
    }

    @Test("Flags win over the environment, the environment over the file")
    func precedence() async throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "hapax-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: file) }
        try Data(#"{"port": 3, "host": "127.0.0.3", "postgres-writers": 5}"#.utf8).write(to: file)
        let configuration = try await read(
            ["--port", "1", "--config=\(file.path)"], ["HAPAX_PORT": "2", "HAPAX_HOST": "127.0.0.2"])
        #expect(configuration.options.port == 1)
        #expect(configuration.options.host == "127.0.0.2")
        #expect(configuration.postgres.writers == 5)
    }

    @Test("The public key works on loopback only")
    func publicKeyIsRefusedOffLoopback() async throws {
        let demo = ["HAPAX_WRITE_KEYS": "demo=demo"]
        for host in ["127.0.0.1", "localhost", "::1", "127.9.9.9"] {
            #expect(await problem(["--host", host], demo) == nil)
        }
        for host in ["0.0.0.0", "::", "192.0.2.1", "example.org", "127.evil.example"] {
            #expect(await problem(["--host", host], demo)?.contains("loopback") == true, "\(host)")
        }
    }

    @Test(
        "What cannot be used is refused with the setting's name",
        arguments: [
            (["--port", "65536"], "port"), (["--port", "x"], "port"), (["--store", "mysql://x"], "store"),
            (["--store", "sqlite:"], "store"),
            (["--write-keys", "shop"], "write-keys"), (["--write-keys", "=k"], "write-keys"), (["--write-keys", "a=k,b=k"], "write-keys"),
            (["--postgres-writers", "17"], "postgres-writers"), (["--log-level", "loud"], "log-level"), (["--prot", "1"], "--prot"),
            (["--port"], "port"), (["stray"], "stray"), (["--config", "/does/not/exist.json"], "config"),
        ])
    func unusableSettingsAreRefused(arguments: [String], name: String) async {
        #expect(await problem(arguments)?.contains(name) == true)
    }

    @Test("No key and no connection string in what a refusal says (I14)")
    func refusalsKeepSecrets() async {
        for arguments in [["--store", "mysql://u:hunter2@h"], ["--write-keys", "a=hunter2,b=hunter2"], ["--write-keys", "hunter2"]] {
            let text = await problem(arguments)
            #expect(text != nil)
            #expect(text?.contains("hunter2") == false)
        }
    }

    @Test("The help names every setting, its environment variable and its default")
    func helpNamesEverySetting() {
        for setting in ServerSetting.all {
            #expect(ServerSetting.helpText.contains("--\(setting.name)"))
            #expect(ServerSetting.helpText.contains(setting.environmentName))
            if let text = setting.defaultText { #expect(ServerSetting.helpText.contains(text)) }
        }
    }
}
