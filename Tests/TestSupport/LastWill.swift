import Foundation
import HapaxModel

/// What must be cleaned up when this process ends, however it ends: children, clusters, directories.
///
/// A shell waits at the other end of a pipe whose write end only this process holds. When the process is gone, killed or not, the shell
/// reads the end of the pipe and runs what is left in its list, the latest first, as deferred work is.
package final class LastWill: Sendable {
    /// One thing to do; its number in the shell's list.
    package struct Entry: Sendable {
        fileprivate let number: Int
    }

    /// The will of this process. It is there to outlive all tests, hence one for the process.
    package static let shared = LastWill()

    private struct State {
        var next = 1
        var pipe: Descriptor?
        var shell: pid_t = 0
    }
    private let state = Locked(State())

    /// `+ N COMMAND` adds, `- N` removes, `! N` runs at once and removes. Signals from a terminal must not end it before its time.
    private static let script = """
        trap '' INT TERM HUP QUIT
        all=
        while read -r verb number command; do
            case $verb in
            +) eval "will_$number=\\$command"; all="$number $all" ;;
            -) unset "will_$number" ;;
            !) eval "now=\\${will_$number-:}"; unset "will_$number"; (eval "$now") & ;;
            esac
        done
        for number in $all; do
            eval "command=\\${will_$number-}"
            if [ -n "$command" ]; then (eval "$command"); fi
        done
        wait
        """

    package init() {}

    /// - Parameter command: One line for `sh`.
    package func add(_ command: String) throws -> Entry {
        precondition(!command.contains("\n"), "a will is one line")
        return try state.withLock { state in
            if state.pipe == nil {
                let (reading, writing) = try Descriptor.pipe()
                state.shell = try Spawn.start(
                    "/bin/sh", ["-c", Self.script], input: reading, output: nil, error: nil, inOwnGroup: true)
                state.pipe = writing
            }
            let number = state.next
            state.next += 1
            try state.pipe?.write("+ \(number) \(command)\n")
            return Entry(number: number)
        }
    }

    package func remove(_ entry: Entry) {
        state.withLock { try? $0.pipe?.write("- \(entry.number)\n") }
    }

    /// Hands the cleaning up to the shell now and does not wait for it.
    package func execute(_ entry: Entry) {
        state.withLock { try? $0.pipe?.write("! \(entry.number)\n") }
    }

    package static func quoted(_ word: String) -> String {
        "'" + word.replacing("'", with: #"'\''"#) + "'"
    }
}
