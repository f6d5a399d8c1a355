import Foundation
import TestSupport
import Testing

@Suite("hapax help and completion", .endsWhenItHangs)
struct CommandHelpTests {
    private let hapax = CommandLine(server: "http://127.0.0.1:1")

    private static let commands: [[String]] = [
        ["track"], ["import"], ["flush"], ["status"], ["queue", "list"], ["queue", "show"], ["queue", "purge"], ["dead-letters", "list"],
        ["dead-letters", "export"], ["dead-letters", "retry"], ["dead-letters", "purge"], ["identity", "show"], ["identity", "login"],
        ["identity", "logout"], ["identity", "reset"], ["identity", "opt-out"], ["identity", "opt-in"], ["identity", "pending"], ["tail"],
        ["events"],
        ["report", "daily"], ["report", "series"], ["report", "breakdown"], ["report", "funnel"], ["report", "retention"], ["reconcile"],
        ["senders"],
        ["export"],
    ]

    @Test("every command says how it exits and shows an example, by --help and by help", arguments: commands)
    func helpAnswers(command: [String]) async throws {
        let help = try await hapax.start(["help"] + command).finish()
        #expect(help.status == 0)
        #expect(help.out.contains("xits with") && help.out.contains("xample") && help.out.contains("hapax \(command[0])"))
        #expect(try await hapax.start(command + ["--help"]).finish().out.hasPrefix(help.out.prefix(200)))
    }

    @Test("the list above is whole, and the root names exit codes, environment and completion")
    func rootNamesEverything() async throws {
        let root = try await hapax.run("--help").out
        for word in ["Exit codes", "HAPAX_SERVER", "--generate-completion-script", "75"] { #expect(root.contains(word)) }
        func subcommands(_ path: [String]) async throws -> [[String]] {
            let help = try await hapax.start(["help"] + path).finish().out
            guard let list = help.components(separatedBy: "SUBCOMMANDS:\n").dropFirst().first else { return [path] }
            let names = list.split(separator: "\n").compactMap { line in
                line.hasPrefix("  ") && !line.hasPrefix("   ") && !line.contains("See 'hapax") ? line.split(separator: " ").first : nil
            }
            var found: [[String]] = []
            for name in names { found += try await subcommands(path + [String(name)]) }
            return found
        }
        #expect(Set(try await subcommands([])) == Set(Self.commands))
    }

    @Test("completion scripts name the commands, and complete directories and files", arguments: ["bash", "zsh", "fish"])
    func completionIsGenerated(shell: String) async throws {
        let script = try await hapax.run("--generate-completion-script", shell)
        #expect(script.status == 0)
        for word in ["track", "dead-letters", "purge", "opt-out", "derive-id"] { #expect(script.out.contains(word)) }
        let directories = ["bash": "completions -d", "zsh": "_files -/", "fish": "__hapax_complete_directories"]
        #expect(script.out.contains(try #require(directories[shell])))
    }

    @Test("the bash script is valid and completes a subcommand's options")
    func bashCompletes() async throws {
        let script = try await hapax.run("--generate-completion-script", "bash").out
        let file = hapax.directory.path + "/completion"
        try Data((script + "\n" + Self.press).utf8).write(to: URL(fileURLWithPath: file))
        let bash = try ChildProcess("/bin/bash", [file])
        let words = await bash.remainingLines()
        #expect(words.contains("--with-dead-letters") && !words.contains("--derive-id"))
    }

    /// As if the tab key were pressed.
    private static let press = """
        COMP_LINE='hapax queue purge --'
        COMP_POINT=${#COMP_LINE}
        COMP_WORDS=(hapax queue purge --)
        COMP_CWORD=3
        COMP_TYPE=9
        _hapax hapax -- purge
        printf '%s\\n' "${COMPREPLY[@]}"
        """
}
