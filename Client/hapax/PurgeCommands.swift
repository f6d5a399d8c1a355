import ArgumentParser
import HapaxClient
import HapaxModel

/// `queue purge`.
struct PurgeQueue: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge",
        abstract: "Deletes every event that waits, for ever.",
        discussion: """
            Also those that were stored beside the queue. They are counted as `purged` among the queue's dropped events, which the server \
            is told with the next batch. Dead letters stay unless --with-dead-letters is given. Asks first on a terminal; elsewhere give \
            --yes. Durable on return.

            Exits with 0 if nothing waits any more, 1 if a queue cannot be used or the answer was no, 64 without a terminal and without \
            --yes, 75 if another process works on the queue, or on one stored beside it: that one's events stay.

            Example:
              hapax queue purge --with-dead-letters --yes --json
            """)

    @Flag(help: "Delete the dead letters as well.")
    var withDeadLetters = false
    @OptionGroup var confirmation: Confirmation
    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    private struct Removed {
        var waiting = 0
        var deadLetters = 0
        var spoolsInUse = 0
        /// Queues that were not purged, or that stay with what they have to tell: what is to be said of each.
        var complaints: [String] = []

        mutating func add(_ purged: (waiting: Int, deadLetters: Int)) {
            waiting += purged.waiting
            deadLetters += purged.deadLetters
        }

        mutating func leave(_ path: String) { complaints.append("a spooled queue cannot be used and may hold events: \(path)") }
    }

    func run() async throws {
        let (isThere, summary) = try QueueReader.beforeTaking(queue) { reader throws(StorageFailure) in try reader.summary() }
        if !isThere, !queue.directory.holdsMore { return tell(Removed()) }
        let waiting = (summary?.books.depth ?? 0) + SpoolSurvey(of: queue.directory).depth
        let letters = withDeadLetters ? " and \(summary?.deadLetters ?? 0) dead letters" : ""
        let isDamaged = (isThere && summary == nil) || queue.directory.holdsUnsalvaged
        let more = isDamaged ? ", and what a damaged file holds," : ""
        try confirmation.ask("Delete \(waiting) waiting events\(letters)\(more) for ever?")
        let owner = try EventQueue.forCommand(queue)
        defer { owner.close() }
        var removed = Removed()
        var spools: [QueueDirectory] = []
        removed.add(try await owner.changingAll { try await removeAll(of: $0) })
        do throws(StorageFailure) {
            spools = try queue.directory.spools()
        } catch {
            removed.leave(queue.directory.spoolPath)
        }
        for spool in spools { await purge(spool, beside: owner, &removed) }
        tell(removed)
        removed.complaints.forEach(Terminal.complain)
        if !removed.complaints.isEmpty { throw ExitCode.failure }
        if removed.spoolsInUse > 0 {
            Terminal.complain("\(removed.spoolsInUse) queues beside this one are in use; their events stay. Run the command again")
            throw ExitCode.queueTaken
        }
    }

    private func removeAll(of queue: EventQueue) async throws -> (waiting: Int, deadLetters: Int) {
        guard withDeadLetters else { return (try await queue.purgeWaiting(), 0) }
        let purged = try queue.purge()
        return (purged.waiting, purged.deadLetters)
    }

    /// What is gone already is told, whatever becomes of this one.
    private func purge(_ directory: QueueDirectory, beside main: EventQueue, _ removed: inout Removed) async {
        var ids = UUIDv7Generator()
        let spool: EventQueue
        do throws(QueueOpenError) {
            spool = try EventQueue(
                directory: directory, durability: .power, newInstallID: ids.next(unixMilliseconds: SystemClock().unixMilliseconds),
                isSpool: true, createsDirectory: false)
        } catch {
            if error == .taken { removed.spoolsInUse += 1 } else if directory.isThere { removed.leave(directory.path) }
            return
        }
        do {
            removed.add(try await spool.salvaging { try await removeAll(of: $0) })
        } catch {
            spool.close()
            return removed.leave(directory.path)
        }
        do {
            if !(try spool.removeIfEmpty(adoptedBy: { try main.adopt($0) })) { spool.close() }
        } catch {
            spool.close()
            removed.complaints.append(
                "a spooled queue is empty, and stays with what the server is to be told of it: \(StorageFailure(error)): \(directory.path)")
        }
    }

    private func tell(_ removed: Removed) {
        if output.json {
            return Terminal.say(json: [
                "purged": .count(removed.waiting), "purged_dead_letters": .count(removed.deadLetters),
                "spools_in_use": .count(removed.spoolsInUse), "unusable_spools": .count(removed.complaints.count),
            ])
        }
        Terminal.say("\(removed.waiting) waiting events deleted" + (withDeadLetters ? ", \(removed.deadLetters) dead letters deleted" : ""))
    }
}

/// `dead-letters purge`.
struct PurgeDeadLetters: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "purge",
        abstract: "Deletes dead letters, for ever.",
        discussion: """
            They stay counted in `dead_lettered`. Consider export first. Asks first on a terminal; elsewhere give --yes. Durable on return.

            Exits with 0 if done, 1 if a number is none of them, the queue cannot be used or the answer was no, 64 without a terminal and \
            without --yes, 75 if another process works on the queue.

            Example:
              hapax dead-letters export > refused.ndjson && hapax dead-letters purge --all --yes
            """)

    @Argument(help: "Their numbers.")
    var numbers: [Int64] = []
    @Flag(help: "All of them.")
    var all = false
    @OptionGroup var confirmation: Confirmation
    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        if numbers.isEmpty != all { throw ValidationError("Which ones? Give their numbers, or --all.") }
    }

    func run() async throws {
        guard try QueueReader.isThere(queue) else { return try tell(0, unknown: numbers) }
        // Those that a damaged file held are among them, and nothing else than what the question was about is deleted.
        let present = try await changing { try $0.deadLetterNumbers() }
        let wanted = all ? present : numbers
        try confirmation.ask("Delete \(wanted.count) dead letters for ever?")
        let purged = try await changing { try $0.purgeDeadLetters(wanted) }
        try tell(purged, unknown: wanted.filter { !present.contains($0) })
    }

    /// The queue is given back while the question waits for its answer.
    private func changing<Value>(_ change: (EventQueue) throws -> Value) async throws -> Value {
        let owner = try EventQueue.forCommand(queue)
        defer { owner.close() }
        return try await owner.changingAll { try change($0) }
    }

    private func tell(_ purged: Int, unknown: [Int64]) throws {
        Terminal.say(purged, output, json: "purged_dead_letters", text: "dead letters deleted")
        try DeadLettersCommand.complain(unknown: unknown)
    }
}

extension Terminal {
    fileprivate static func say(_ count: Int, _ output: OutputOptions, json key: String, text: String) {
        if output.json { say(json: [key: .count(count)]) } else { say("\(count) \(text)") }
    }
}
