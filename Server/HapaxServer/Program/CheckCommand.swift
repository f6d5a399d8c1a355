import ArgumentParser
import Foundation
import HapaxModel

struct CheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check", abstract: "Looks whether settings, files and store are as they should be, and says what helps.",
        discussion: """
            Takes the settings of the server, and changes nothing; servers may run meanwhile. Exit codes: 0 all is well, 1 something deserves \
            attention, 2 something is wrong.
            """)
    @OptionGroup var settings: ServerFlags
    @Flag(help: "As JSON.") var json = false
    @Flag(help: "Only what is not well, for cron: no line and exit code 0 if all is.") var alerts = false

    @Flag(help: "Also look for the row of each number that the books say is stored: as long as reading all events takes.") var deep = false
    @Flag(help: "Only what the next start of this version would do to the store.") var upgrade = false

    /// - Returns: The exit code.
    @available(macOS 14, *)
    func run(_ environment: [String: String], now: Int64) async -> Int32 {
        var findings = await findings(environment, now)
        // What keeps a store from being looked at belongs to the answer.
        if upgrade {
            findings.removeAll { $0.subject != "schema" && !(["settings", "store"].contains($0.subject) && $0.verdict == .fail) }
        }
        let verdict = findings.verdict
        if alerts { findings.removeAll { $0.verdict == .ok } }
        let text = json ? AccessCommands.json { findings.write(to: &$0) } : findings.text
        if !text.isEmpty { print(text) }
        // What nobody can read must not look like nothing.
        guard fflush(nil) == 0 else { return 74 }
        return verdict.exitCode
    }

    @available(macOS 14, *)
    private func findings(_ environment: [String: String], _ now: Int64) async -> [Finding] {
        let configuration: ServerConfiguration
        do { configuration = try ServerConfiguration(flags: settings.flags, environment: environment) } catch {
            return [.fail("settings", "\(error)")]
        }
        let hasFixedKeys = !configuration.writeKeys.isEmpty || !configuration.readKeys.isEmpty || configuration.adminKey != nil
        let own = SettingsCheck(configuration: configuration, flags: settings.flags, environment: environment, now: now).findings()
        switch configuration.store {
        case .sqlite(let path):
            return own + (await SQLiteCheck(path: path, now: now, hasFixedKeys: hasFixedKeys, isDeep: deep).findings())
        case .postgres(let uri):
            return own
                + (await PostgresCheck(
                    uri: uri, options: configuration.postgres, now: now, hasFixedKeys: hasFixedKeys, isDeep: deep
                ).findings())
        }
    }
}
