import Foundation
import HapaxModel

/// A program running beside the test, its output read line by line; killed with all that it started when the last reference goes.
package final class ChildProcess: Sendable {
    package enum Exit: Hashable, Sendable {
        case exited(Int32)
        case signaled(Int32)

        init(status: Int32) {
            let signal = status & 0x7F
            self = signal == 0 ? .exited((status >> 8) & 0xFF) : .signaled(signal)
        }
    }

    /// The program ended without the line that was waited for.
    package struct EndedEarly: Error, CustomStringConvertible {
        package let description: String
    }

    package let name: String
    package let processID: pid_t
    private let life: Life
    private let output = LineBuffer()
    private let errors: Locked<Tail>
    private let errorsEnd = LineBuffer()
    private let will: LastWill.Entry

    /// - Parameters:
    ///   - executable: A path, or the name of an executable of this package.
    ///   - environment: Added to this process's own.
    ///   - input: Standard input; nil reads as empty.
    ///   - output: Standard output, if it is not to be read line by line here; there are no lines then.
    package init(
        _ executable: String, _ arguments: [String] = [], environment: [String: String] = [:], input: Descriptor? = nil,
        output: Descriptor? = nil
    ) throws {
        let path = executable.hasPrefix("/") ? executable : try PackageLayout.executable(executable)
        name = URL(filePath: path).lastPathComponent
        // Only the reading ends may live on in the threads below, or the end of the output would never be read.
        let (outputReading, outputWriting) = try Descriptor.pipe()
        let (errorReading, errorWriting) = try Descriptor.pipe()
        let processID = try Spawn.start(
            path, arguments,
            // A server's deadlines would end senders that a busy machine starves; their tests move a clock.
            environment: ProcessInfo.processInfo.environment.merging(["HAPAX_DEADLINE_FACTOR": "10"]) { $1 }.merging(environment) { $1 },
            input: input, output: output ?? outputWriting, error: errorWriting, inOwnGroup: true)
        self.processID = processID
        will = try LastWill.shared.add("kill -9 -\(processID)")
        let life = Life(processID)
        self.life = life
        let errors = Locked(Tail())
        self.errors = errors
        // The threads hold no reference to this object: dropping it must end the program.
        Thread.detachNewThread { [lines = self.output] in
            while let bytes = try? outputReading.read(), !bytes.isEmpty { lines.append(bytes) }
            lines.end()
        }
        Thread.detachNewThread { [errorsEnd] in
            while let bytes = try? errorReading.read(), !bytes.isEmpty { errors.withLock { $0.append(bytes) } }
            errorsEnd.end()
        }
        let will = self.will
        Thread.detachNewThread {
            // Not reaped yet: the number still names this process when its will is taken back.
            var info = siginfo_t()
            while waitid(P_PID, id_t(processID), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR {}
            LastWill.shared.remove(will)
            life.reap()
        }
    }

    deinit { life.killGroup() }

    /// The next line of standard output; nil at its end, and when the task is cancelled.
    package func nextLine() async -> String? {
        await output.next()
    }

    /// Reads lines up to the first that begins with `prefix` and returns the rest of it.
    package func line(after prefix: String) async throws -> String {
        while let line = await nextLine() {
            if line.hasPrefix(prefix) { return String(line.dropFirst(prefix.count)) }
        }
        throw EndedEarly(description: "\(name) ended its output before “\(prefix)”; standard error: \(standardErrorTail)")
    }

    /// All lines up to the end of standard output.
    package func remainingLines() async -> [String] {
        var lines: [String] = []
        while let line = await nextLine() { lines.append(line) }
        return lines
    }

    /// All of standard output up to its end, each line with its end.
    package func remainingOutput() async -> String {
        await remainingLines().map { $0 + "\n" }.joined()
    }

    /// The last of what it wrote to standard error, for failure messages.
    package var standardErrorTail: String {
        errors.withLock { String(decoding: $0.bytes, as: UTF8.self) }
    }

    /// The same, once standard error has ended: a program's exit can be known before its last words.
    package func remainingErrors() async -> String {
        _ = await errorsEnd.next()
        return standardErrorTail
    }

    /// SIGSTOP; returns when none of its threads runs any more: one takes the signal, and the others go on until it has a processor.
    package func stop() async {
        kill(SIGSTOP)
        let tasks = "/proc/\(processID)/task"
        while true {
            let threads = (try? FileManager.default.contentsOfDirectory(atPath: tasks)) ?? []
            // The state stands behind the name, which is in parentheses (https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html).
            let states = threads.map {
                (try? String(contentsOfFile: "\(tasks)/\($0)/stat", encoding: .utf8))?.split(separator: ") ").last?.first
            }
            if states.allSatisfy({ $0 == "T" || $0 == nil }) { return }
            await Task.yield()
        }
    }

    package func kill(_ signal: Int32 = SIGKILL) {
        life.signal(signal)
    }

    /// Asks it to end: SIGTERM.
    package func terminate() {
        life.signal(SIGTERM)
    }

    @discardableResult
    package func waitUntilExit() async -> Exit {
        await life.exit()
    }

    package var isRunning: Bool { life.isRunning }
}

/// Whether the process is there. After it is reaped its number may name another one, so signals go through here.
private final class Life: Sendable {
    private struct State {
        var exit: ChildProcess.Exit?
        var waiting: [CheckedContinuation<ChildProcess.Exit, Never>] = []
    }
    private let processID: pid_t
    private let state = Locked(State())

    init(_ processID: pid_t) { self.processID = processID }

    var isRunning: Bool { state.withLock { $0.exit == nil } }

    func signal(_ signal: Int32) {
        state.withLock { if $0.exit == nil { _ = kill(processID, signal) } }
    }

    /// What the program started itself must not outlive it.
    func killGroup() {
        state.withLock { if $0.exit == nil { _ = kill(-processID, SIGKILL) } }
    }

    func reap() {
        let (exit, waiting) = state.withLock { state in
            var status: Int32 = 0
            while waitpid(processID, &status, 0) < 0 && errno == EINTR {}
            let exit = ChildProcess.Exit(status: status)
            state.exit = exit
            defer { state.waiting = [] }
            return (exit, state.waiting)
        }
        for continuation in waiting { continuation.resume(returning: exit) }
    }

    func exit() async -> ChildProcess.Exit {
        await withCheckedContinuation { continuation in
            let exit = state.withLock { state in
                if state.exit == nil { state.waiting.append(continuation) }
                return state.exit
            }
            if let exit { continuation.resume(returning: exit) }
        }
    }
}

/// The last bytes of a stream.
private struct Tail {
    private static let limit = 16 * 1024
    private(set) var bytes: [UInt8] = []

    mutating func append(_ more: [UInt8]) {
        bytes += more
        if bytes.count > 2 * Self.limit { bytes.removeFirst(bytes.count - Self.limit) }
    }
}
