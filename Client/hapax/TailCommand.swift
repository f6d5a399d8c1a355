import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct TailCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "tail",
        abstract: "Shows what arrives at a server, live, with what became of it.",
        discussion: """
            One line for each event and each refusal, from now on, of the one server that answers. A server that goes away is tried \
            again; what arrived meanwhile is not shown, hapax events lists it. Above 50 lines a second some are left out, which is said.

            With --count it ends after so many lines with 0, with --timeout after so many seconds: with 1 if there were fewer lines than \
            --count says. Exits with 1 if the server refuses.

            Examples:
              hapax tail --event order_paid
              hapax tail --json --count 1 --timeout 10 | jq .event.properties
            """)

    @Option(help: ArgumentHelp("Only events of this name.", valueName: "name"))
    var event: String?

    @Option(help: ArgumentHelp("Only this outcome: stored, duplicate, conflict, rejected, expired or retry.", valueName: "outcome"))
    var outcome: String?

    @Option(help: ArgumentHelp("End after so many lines.", valueName: "number"))
    var count: Int?

    @Option(help: ArgumentHelp("End after so many seconds.", valueName: "seconds"))
    var timeout: Int?

    @OptionGroup var reading: ReadOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        if let count, count < 1 { throw ValidationError("--count must be at least 1.") }
        if let timeout, timeout < 1 { throw ValidationError("--timeout must be at least 1.") }
    }

    func run() async throws {
        let end = timeout.map { ContinuousClock.now + .seconds($0) }
        let lines = TailLines(isJSON: output.json, limit: count)
        var wait = Duration.milliseconds(500)
        while true {
            // A stream without an end of its own begins anew each day.
            let left = end.map { $0 - .now } ?? .seconds(86_400)
            guard left > .zero else { return try finish(lines.shown) }
            let transport = SystemTransport.make()
            lines.begin { transport.close() }
            let before = lines.shown
            let request = try reading.request("v1/live", [("event", event), ("outcome", outcome)], timeout: left, onBody: lines.add)
            let answer = await transport.send(request)
            transport.close()
            if let count, lines.shown >= count { return }
            if let end, end <= .now { return try finish(lines.shown) }
            if case .success(let answer) = answer, (400..<500).contains(answer.status), answer.status != 429 {
                return try ReadOptions.check(.success(answer))
            }
            if lines.shown > before { wait = .milliseconds(500) }
            Terminal.complain("\(Self.reason(answer)); trying again")
            try await Task.sleep(for: min(wait, end.map { max($0 - .now, .zero) } ?? wait))
            wait = min(wait * 2, .seconds(10))
        }
    }

    private static func reason(_ answer: Result<TransportAnswer, TransportFailure>) -> String {
        switch answer {
        case .success(let answer): answer.status == 200 ? "the stream has ended" : "the server answers \(answer.status)"
        case .failure(let failure): "the server cannot be read: \(failure)"
        }
    }

    private func finish(_ shown: Int) throws {
        guard let count, shown < count else { return }
        Terminal.complain("\(shown) of \(count) came in time")
        throw ExitCode.failure
    }
}

/// Takes a stream of server-sent events apart and prints its lines, as they come.
private final class TailLines: Sendable {
    private struct State {
        var rest: [UInt8] = []
        var shown = 0
        var end: @Sendable () -> Void = {}
    }

    private let isJSON: Bool
    private let limit: Int?
    private let isColored = isatty(STDOUT_FILENO) == 1 && environment("NO_COLOR") == nil && environment("TERM") != "dumb"
    private let state = Locked(State())

    init(isJSON: Bool, limit: Int?) {
        self.isJSON = isJSON
        self.limit = limit
    }

    var shown: Int { state.withLock { $0.shown } }

    /// A stream begins, which `end` ends.
    func begin(_ end: @escaping @Sendable () -> Void) {
        state.withLock { state in
            state.rest = []
            state.end = end
        }
    }

    func add(_ bytes: [UInt8]) {
        state.withLock { state in
            state.rest += bytes
            while let end = state.rest.firstIndex(of: 0x0A) {
                line(state.rest[..<end], &state)
                state.rest.removeFirst(end + 1)
            }
        }
    }

    private func line(_ line: ArraySlice<UInt8>, _ state: inout State) {
        let prefix = Array("data: ".utf8)
        guard line.starts(with: prefix), state.shown < limit ?? .max, let event = EventLine(line.dropFirst(prefix.count)) else { return }
        if let missed = event.number("rows") { return Terminal.complain("\(missed) lines were left out: too many at once") }
        // Each second's rate has neither.
        guard event.text("event.event_id") != nil || event.text("reason") != nil else { return }
        state.shown += 1
        if isJSON { Terminal.write(event.oneLine) } else { Terminal.say(event.text(hasDate: false, isColored: isColored)) }
        if state.shown == limit { state.end() }
    }
}
