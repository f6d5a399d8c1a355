import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct ExportCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Writes what a server has stored: one JSON object (or row of CSV) on each line, oldest received first.",
        discussion: """
            Each line is what `hapax import` takes, under the same id, and ends with received_at. It goes as far as nothing can appear any \
            more between what was written, which is some seconds ago.

            With --output it goes on behind the file's last whole line, and takes away what an interruption left of the next; a file that \
            is no export is left alone. Run it again after an interruption, or tomorrow for what has come since, always with the same \
            filters. Without, --after goes on behind an event. A server that goes away is tried again.

            --csv is for spreadsheets and tables: event_id, event, time, distinct_id, received_at, and the properties as one column of JSON, or \
            as the columns of --columns. Control characters are written out (\\u{A}), and a text that a spreadsheet would take for a formula \
            begins with '. To bring events to another server, take the lines of JSON.

            Exits with 0 if all is written, 1 if the server does not answer what it was asked, 74 if it cannot be written.

            Examples:
              hapax export --output events.ndjson
              hapax export --happened-from 2026-11-01 --event order_paid | jq .properties.amount
              hapax export --csv --columns plan,amount --output orders.csv
            """)

    @Option(
        name: .shortAndLong, help: ArgumentHelp("The file; it goes on where it ends. Default: standard output.", valueName: "file"),
        completion: .file())
    var output: String?

    @Option(help: ArgumentHelp("Only events of this name.", valueName: "name"))
    var event: String?

    @Option(help: ArgumentHelp("Only events of this user (distinct_id).", valueName: "user"))
    var user: String?

    @Option(help: ArgumentHelp("Only what follows this event.", valueName: "id"))
    var after: EventID?

    @Flag(help: "Rows of CSV instead of lines of JSON.")
    var csv = false

    @Option(help: ArgumentHelp("Properties that become columns of --csv, with commas between; a path has dots.", valueName: "properties"))
    var columns: String?

    @OptionGroup var span: SpanOptions
    @OptionGroup var reading: ReadOptions

    private var properties: [String] { columns?.split(separator: ",").map { $0.trimmingCharacters(in: .whitespaces) } ?? [] }

    func validate() throws {
        if Set(properties).count < properties.count { throw ValidationError("A property of --columns is given twice.") }
        if columns != nil, !csv { throw ValidationError("--columns are of --csv.") }
        if after != nil, output != nil { throw ValidationError("--output goes on where its file ends; --after is for standard output.") }
    }

    func run() async throws {
        let lines: ExportLines
        do {
            let csv = csv ? CSVExport(properties: properties) : nil
            lines = try output.map { try ExportLines(file: $0, csv) } ?? ExportLines(after: after, csv)
        } catch let error as ExportLines.Failure {
            Terminal.complain(error.reason)
            throw ExitCode.failure
        }
        var wait = Duration.milliseconds(500)
        while true {
            let transport = SystemTransport.make()
            let before = lines.count
            let request = try reading.request(
                "v1/export", span.parameters + [("event", event), ("distinct_id", user), ("after", lines.last?.description)],
                timeout: .seconds(7 * 86_400)
            ) { bytes in
                // What cannot be written ends the transfer.
                if !lines.add(bytes) { transport.close() }
            }
            let answer = await transport.send(request)
            transport.close()
            if let failure = lines.failure { end(failure) }
            switch answer {
            case .success(let answer) where answer.status == 200: return try finish(lines)
            case .success(let answer) where answer.status < 500 && answer.status != 429: return try ReadOptions.check(.success(answer))
            case .success(let answer): Terminal.complain("the server answers \(answer.status); trying again")
            case .failure(let failure): Terminal.complain("the server cannot be read: \(failure); trying again")
            }
            lines.wasCut()
            wait = lines.count > before ? .milliseconds(500) : min(wait * 2, .seconds(10))
            try await Task.sleep(for: wait)
        }
    }

    private func end(_ failure: Int32) -> Never { Terminal.exit(after: failure, output == nil ? "standard output" : "the file") }

    private func finish(_ lines: ExportLines) throws {
        if let failure = lines.finish() { end(failure) }
        let isByArrival = lines.last == nil && (span.from ?? span.to) != nil
        Terminal.complain(
            "\(lines.count) event\(lines.count == 1 ? "" : "s") written" + (lines.last.map { "; what comes later: --after \($0)" } ?? "")
                + (isByArrival ? "; --from and --to are about when events were received, see --happened-from" : ""))
    }
}

/// Takes an export's lines as they come, and writes whole ones.
private final class ExportLines: Sendable {
    struct Failure: Error {
        var reason: String
    }

    private struct State {
        var rest: [UInt8] = []
        var last: EventID?
        var count = 0
        var failure: Int32?
        var toldAt = ContinuousClock.now
        /// Of CSV: whether the columns' names stand before.
        var hasHeader: Bool
    }

    private let descriptor: Int32
    /// nil for lines of JSON.
    private let csv: CSVExport?
    private let isTerminal = isatty(STDERR_FILENO) == 1
    private let state: Locked<State>

    /// How often it is said how far it is.
    private static let period = Duration.seconds(5)
    /// More than the longest line has.
    private static let tailBytes = 1 << 20

    init(after: EventID?, _ csv: CSVExport?) {
        (descriptor, self.csv) = (STDOUT_FILENO, csv)
        state = Locked(State(last: after, hasHeader: after != nil))
    }

    /// A line that was cut is taken away.
    init(file: String, _ csv: CSVExport?) throws {
        self.csv = csv
        descriptor = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        func failure(_ what: String) -> Failure { Failure(reason: "\(what): \(String(cString: strerror(errno)))") }
        guard descriptor >= 0 else { throw failure("the file cannot be opened") }
        let size = lseek(descriptor, 0, SEEK_END)
        guard size >= 0 else { throw failure("--output must be a file that can be read") }
        var tail = [UInt8](repeating: 0, count: Int(min(size, off_t(Self.tailBytes))))
        guard pread(descriptor, &tail, tail.count, size - off_t(tail.count)) == tail.count else { throw failure("the file cannot be read") }
        let end = tail.lastIndex(of: 0x0A).map { $0 + 1 } ?? 0
        let header = csv?.header ?? []
        var begin = [UInt8](repeating: 0, count: header.count)
        let hasHeader = pread(descriptor, &begin, begin.count, 0) == begin.count && begin == header
        let last = end > 0 ? Self.lastLine(of: tail[..<(end - 1)], csv) : nil
        // Nothing is taken away, and nothing added, but where an export has been.
        let isOwn = last != nil || (end == 0 && size < Self.tailBytes) || (csv != nil && size < Self.tailBytes && end == header.count)
        guard isOwn, end == 0 || hasHeader, Self.begins(tail[end...], csv, isFirst: end == 0) else {
            throw Failure(
                reason: csv == nil
                    ? "the file's last line is no line of an export; nothing was done"
                    : "the file's first or last line is none of an export with these columns; nothing was done")
        }
        let whole = size - off_t(tail.count - end)
        guard whole == size || ftruncate(descriptor, whole) == 0, lseek(descriptor, whole, SEEK_SET) == whole else {
            throw failure("the file cannot be written")
        }
        state = Locked(State(last: last, hasHeader: end > 0))
    }

    /// The last event that was written.
    var last: EventID? { state.withLock { $0.last } }
    var count: Int { state.withLock { $0.count } }
    /// `errno` of what could not be written.
    var failure: Int32? { state.withLock { $0.failure } }

    /// - Returns: Whether it could be written.
    func add(_ bytes: [UInt8]) -> Bool {
        state.withLock { state in
            guard state.failure == nil else { return false }
            state.rest += bytes
            guard let end = state.rest.lastIndex(of: 0x0A).map({ $0 + 1 }) else { return true }
            let lines = state.rest[..<end].split(separator: 0x0A)
            state.failure = Terminal.attempt(
                csv.map { csv in (state.hasHeader ? [] : csv.header) + lines.flatMap { csv.row($0) } } ?? Array(state.rest[..<end]),
                on: descriptor)
            guard state.failure == nil else { return false }
            state.hasHeader = true
            state.rest.removeFirst(end)
            state.count += lines.count
            state.last = lines.last.flatMap { Self.id($0) } ?? state.last
            if state.toldAt + Self.period <= .now {
                state.toldAt = .now
                Terminal.note("\(isTerminal ? "\r\u{1B}[K" : "")hapax: \(state.count) events\(isTerminal ? "" : "\n")")
            }
            return true
        }
    }

    /// What had come of a line is asked for again.
    func wasCut() { state.withLock { $0.rest = [] } }

    /// - Returns: `errno` if it is not durable.
    func finish() -> Int32? {
        if let csv, !state.withLock({ $0.hasHeader }), let failure = Terminal.attempt(csv.header, on: descriptor) { return failure }
        // A pipe or a terminal has nothing to make durable.
        return descriptor != STDOUT_FILENO && fsync(descriptor) != 0 ? errno : nil
    }

    private static func lastLine(of tail: ArraySlice<UInt8>, _ csv: CSVExport?) -> EventID? {
        let line = tail[(tail.lastIndex(of: 0x0A).map { $0 + 1 } ?? tail.startIndex)...]
        if let csv { return csv.id(line) }
        let event = EventScanner.scan(line)
        return event.problem == nil && PropertyLookup.names(in: line).last == Array("received_at".utf8) ? event.id : nil
    }

    /// Whether a line of an export can begin so, as far as it goes.
    private static func begins(_ bytes: ArraySlice<UInt8>, _ csv: CSVExport?, isFirst: Bool) -> Bool {
        if let csv { return isFirst ? csv.header.starts(with: bytes) : csv.beginsRow(bytes) }
        return zip(bytes.drop { $0 == 0x20 }, Array(#"{"event_id":""#.utf8)).allSatisfy { $0 == $1 }
    }

    private static func id(_ line: ArraySlice<UInt8>) -> EventID? {
        EventScanner.scan(line).id
    }
}
