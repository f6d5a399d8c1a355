import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct StatusCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Shows what waits, what was delivered and what was refused.",
        discussion: """
            By destination (a server and a write key, of which the beginning is shown): why the latest request failed, what the server said, and when \
            the next one is made. Then file by file. Of a file that a running process works on, what that has written beside it at its latest commit. Exits \
            with 0 also if something waits, with 1 if a file cannot be used, with 2 if such a process says nothing: then what waits is not known.

            Example:
              hapax status --json
            """)

    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    private struct Line {
        var number: Int
        var note: FileClaim.FileNote?
        var status: FileStatus?
        var isOwned = false
        var isRecovering: Bool { status?.recovering ?? false }
        var failure: StorageFailure?
        /// Its owner is a process that has written nothing that can be read.
        var isUnknown: Bool { isOwned && status == nil }
    }

    func run() async throws {
        let lines = try queue.numbers().map { number in
            var line = Line(number: number, note: FileClaim.note(of: number, in: queue.directory))
            switch FoundFile(number, in: queue.directory) {
            case .open(let file):
                line.status = FileStatus(file.counters, oldest: file.oldestTime, isRecovering: file.isRecovering)
                file.close()
            case .owned(let status): (line.status, line.isOwned) = (status, true)
            case .unusable(let failure): line.failure = failure
            }
            return line
        }
        let setAside = try Terminal.working { try queue.directory.filesSetAside() }
        let consent = Result { try queue.directory.consent }
        if output.json {
            Terminal.say(json: fields(lines, setAside, try? consent.get()))
        } else {
            tell(lines, setAside, try? consent.get())
        }
        _ = try Terminal.working { try consent.get() }
        if lines.contains(where: { $0.failure != nil }) { throw ExitCode.failure }
        if lines.contains(where: \.isUnknown) { throw ExitCode.undelivered }
    }

    /// - Parameter consent: nil if it cannot be read, which is said behind it.
    private func tell(_ lines: [Line], _ setAside: [String], _ consent: Consent?) {
        Terminal.say("queue        \(queue.path)")
        if lines.isEmpty { Terminal.say("             does not exist yet") }
        if consent == .denied { Terminal.say("opted out    events are refused; see hapax identity") }
        if consent == .pending { Terminal.say("pending      events are not sent before the user's consent; see hapax identity") }
        for file in setAside { Terminal.say("damaged      \(file), set aside") }
        let (destinations, ids) = (Destinations(in: queue.directory), ids(lines))
        for id in ids {
            let waits = lines.contains { $0.note?.destination == id && ($0.isUnknown || ($0.status?.waiting ?? 0) > 0) }
            for (index, text) in destinations.lines(id, waits: waits).enumerated() {
                Terminal.say((index == 0 ? "destination  " : "             ") + text)
            }
        }
        for line in lines {
            let place = ids.count > 1 ? ", for \(destinations.name(line.note?.destination))" : ""
            let owner = line.isOwned ? ", held by a running process" : ""
            Terminal.say("file \(line.number)\(owner)\(place)")
            if let failure = line.failure { Terminal.say("  cannot be used: \(failure)") }
            if line.isUnknown { Terminal.say("  not known: that process has not written how it stands") }
            guard let status = line.status else { continue }
            let held = status.held > 0 ? ", \(status.held) of them held" : ""
            Terminal.say("  waiting      \(status.waiting) events, \(status.bytes) bytes\(age(status.oldest))\(held)")
            if line.isRecovering { Terminal.say("  recovering   what damaged files hold; hapax flush goes on with it") }
            Terminal.say("  delivered    \(status.stored) stored, \(status.duplicates) duplicates")
            Terminal.say("  dead letters \(status.deadLetters)")
            for (reason, count) in status.dropped.sorted(by: { $0.key < $1.key }) { Terminal.say("  dropped      \(count) (\(reason))") }
        }
    }

    /// Where the files' events go, in the files' order.
    private func ids(_ lines: [Line]) -> [EventID] {
        lines.compactMap(\.note?.destination).reduce(into: []) { if !$0.contains($1) { $0.append($1) } }
    }

    private func fields(_ id: EventID, _ lines: [Line], _ destinations: Destinations) -> PropertyValue {
        let (files, note) = (lines.filter { $0.note?.destination == id }, destinations.note(id))
        return .object([
            "destination": .optional(id), "server": .optional(note?.server), "key": .optional(note?.key),
            "waiting": files.contains(where: \.isUnknown) ? .null : .integer(files.reduce(0) { $0 + ($1.status?.waiting ?? 0) }),
            "failure": .optional(note?.failure), "detail": .optional(note?.detail), "since": .optional(note?.since),
            "next_try": .optional(destinations.nextTry(id)),
        ])
    }

    private func age(_ oldest: Int64?) -> String {
        guard let oldest else { return "" }
        let seconds = Int64(Date().timeIntervalSince1970) - oldest / 1_000
        return ", the oldest \(max(seconds, 0)) s old"
    }

    private func fields(_ lines: [Line], _ setAside: [String], _ consent: Consent?) -> [String: PropertyValue] {
        let statuses = lines.compactMap(\.status)
        func sum(_ number: KeyPath<FileStatus, Int64>) -> PropertyValue { .integer(statuses.reduce(0) { $0 + $1[keyPath: number] }) }
        let files = lines.map { line in
            PropertyValue.object([
                "file": .count(line.number), "install_id": .optional(line.status?.install),
                "destination": .optional(line.note?.destination), "owned": .bool(line.isOwned),
                "recovering": .bool(line.isRecovering),
                "waiting": .optional(line.status?.waiting), "failure": .optional(line.failure.map { "\($0)" }),
            ])
        }
        let destinations = Destinations(in: queue.directory)
        let dropped = statuses.reduce(into: [String: Int64]()) { $0.merge($1.dropped, uniquingKeysWith: +) }
        return [
            "queue": .string(queue.path), "files": .array(files),
            "destinations": .array(ids(lines).map { fields($0, lines, destinations) }),
            "waiting": lines.contains(where: \.isUnknown) ? .null : sum(\.waiting),
            "held": sum(\.held), "bytes": sum(\.bytes),
            "oldest": .optional(statuses.compactMap(\.oldest).min()), "created": sum(\.created), "stored": sum(\.stored),
            "duplicates": sum(\.duplicates), "dead_lettered": sum(\.deadLettered), "removed": sum(\.removed),
            "dead_letters": sum(\.deadLetters), "set_aside_files": .count(setAside.count),
            "opted_out": consent.map { .bool($0 == .denied) } ?? .null, "consent": .optional(consent?.rawValue),
            "dropped": .object(dropped.mapValues { .integer($0) }),
        ]
    }
}
