import ArgumentParser
import Foundation

/// For what cannot be taken back: asks on a terminal, and wants `--yes` where there is nobody to ask.
struct Confirmation: ParsableArguments {
    @Flag(help: "Do not ask. Needed where standard input is not a terminal.")
    var yes = false

    func validate() throws {
        if !yes && isatty(STDIN_FILENO) == 0 {
            throw ValidationError("This deletes for ever and there is nobody to ask: give --yes.")
        }
    }

    /// Ends the command unless the answer is y or yes.
    func ask(_ question: String) throws {
        if yes { return }
        Terminal.note(question + " [y/N] ")
        let answer = readLine()?.lowercased() ?? ""
        guard answer == "y" || answer == "yes" else {
            Terminal.complain("nothing was deleted")
            throw ExitCode.failure
        }
    }
}
