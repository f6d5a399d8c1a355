import ArgumentParser
import Foundation
import HapaxModel

@main
struct Hapax: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "hapax",
        abstract: "Sends events to a server, each exactly once, and shows what arrived.",
        discussion: """
            Events are stored in a queue directory first and leave it only when the server has acknowledged them. One that the server \
            refuses for good goes to the dead letters with its reason, and stays there until you decide. Any number of processes work \
            in one queue directory, each with a file of its own; what one leaves behind, the others deliver.

            Environment: HAPAX_SERVER, HAPAX_KEY, HAPAX_READ_KEY and HAPAX_QUEUE stand for --server, --key, --read-key and --queue; \
            HAPAX_KEY_FILE names a file with the key. Prefer these for keys: arguments can be seen by other users of the machine.

            Shell completion: hapax --generate-completion-script bash (or zsh, fish) writes a script; see docs/client-script.md for where to put \
            it. `hapax help track` explains a command.

            Exit codes (2 and 3 of track, import and flush; of others hapax help COMMAND has them):
              0    done
              1    failed: the queue or a file cannot be used, the user has opted out, the server does not answer what it was asked, or \
            what was asked for is not there
              2    stored, but not all of it is known to be delivered; it will be, or run the command again
              3    some events are in the dead letters
              64   usage
              74   standard output cannot be written; what the command did is done (141 for a pipe whose reader has gone)
              75   running processes hold files of the queue that the command was to work on
              128+n  interrupted by signal n; what was stored is kept. Run it again; track only with the same id

            Examples:
              hapax track backup_finished --property host=db1 --property bytes:=73400320
              hapax tail
              hapax report daily
              hapax reconcile
            """,
        version: HapaxVersion.current,
        subcommands: [
            TrackCommand.self, ImportCommand.self, FlushCommand.self, StatusCommand.self, QueueCommand.self, DeadLettersCommand.self,
            IdentityCommand.self, TailCommand.self, EventsCommand.self, ReportCommand.self, ReconcileCommand.self, SendersCommand.self,
            ExportCommand.self,
        ])

    static func main() async {
        // A descriptor that the caller closed would be given to the queue's first file. Its place is taken by what can be neither read nor written.
        for descriptor in 0...2 where fcntl(Int32(descriptor), F_GETFD) == -1 {
            _ = open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY)
        }
        // What cannot be written fails, and then the command decides: where nobody reads standard error, it does its work all the same.
        signal(SIGPIPE, SIG_IGN)
        // Swift repairs such arguments: two keys of --derive-id would become one, and their events the same.
        if let place = CommandLine.placeNotUTF8 {
            Terminal.complain("argument \(place) is not UTF-8; nothing was done")
            exit(withError: ExitCode.validationFailure)
        }
        for name in ["HAPAX_QUEUE", "HAPAX_SERVER", "HAPAX_KEY", "HAPAX_KEY_FILE", "HAPAX_READ_KEY", "XDG_STATE_HOME", "HOME"] {
            guard let value = getenv(name), String(validatingCString: value) == nil else { continue }
            Terminal.complain("\(name) is not UTF-8; nothing was done")
            exit(withError: ExitCode.validationFailure)
        }
        do {
            var command = try await asyncParseAsRoot()
            if var command = command as? any AsyncParsableCommand { try await command.run() } else { try command.run() }
        } catch {
            // Help and completion scripts are results like others: the library does not notice what cannot be written.
            let text = exitCode(for: error) == .success ? fullMessage(for: error) : ""
            if text.isEmpty { exit(withError: error) }
            Terminal.say(text)
        }
    }
}

extension CommandLine {
    /// Of the first argument that is not UTF-8, from 1.
    fileprivate static var placeNotUTF8: Int? {
        (1..<max(Int(argc), 1)).first { place in unsafeArgv[place].map { String(validatingCString: $0) == nil } ?? false }
    }
}

/// What scripts may rely on.
extension ExitCode {
    static let undelivered = ExitCode(2)
    static let deadLettered = ExitCode(3)
    /// `EX_IOERR` of sysexits.h.
    static let outputFailed = ExitCode(74)
    /// `EX_TEMPFAIL` of sysexits.h.
    static let queueTaken = ExitCode(75)

    static func signal(_ number: Int32) -> ExitCode { ExitCode(128 + number) }
}
