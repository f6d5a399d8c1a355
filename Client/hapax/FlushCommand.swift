import ArgumentParser
import HapaxClient
import HapaxModel

struct FlushCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "flush",
        abstract: "Delivers what is stored.",
        discussion: """
            Sends what waits for this server and key in all files of the queue, batch after batch, until nothing is left, an attempt fails, or the time \
            is over. An event leaves the queue only when the server has acknowledged it; stopping this command loses nothing. What a \
            running process holds it sends itself.

            Exits with 0 if nothing waits in the directory, 1 if a file of the queue cannot be used, 2 if something waits (also for another \
            server or key, or in the file of a running process), if nobody can tell, or if a damaged file has lost events, 3 if events \
            became dead letters. Losses are told by the command that finds them, and 2 is its exit code alone: hapax status counts them for ever, \
            as dropped.

            Example, from cron:
              hapax flush --timeout 300 --json
            """)

    @Option(help: ArgumentHelp("Seconds for all of it.", valueName: "seconds"))
    var timeout = 60

    @OptionGroup var server: ServerOptions
    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        if timeout < 1 { throw ValidationError("--timeout must be at least 1.") }
    }

    func run() async throws {
        let configuration = try server.configuration(queue: queue)
        let destinations = try configuration.destinations()
        let client = try OpenClient.startForCommand(configuration)
        let flush = await client.finalFlush(within: .seconds(timeout))
        let damages = [await client.status().damage].compactMap(\.self) + (flush.leftovers?.damages ?? [])
        _ = await client.shutdown(within: .zero)
        let rest = await TimeLimit.result(after: .seconds(5)) { [directory = queue.directory] in Rest(directory, destinations) }
        let (report, counts) = (flush.own, flush.leftovers?.counts ?? DeliveryCounts())
        let failure = (report.failure ?? flush.leftovers?.failure)?.text(timeout: timeout, client.latestDetail)
        let (stored, duplicates) = (report.stored + counts.stored, report.duplicates + counts.duplicates)
        let deadLettered = report.deadLettered + counts.deadLettered
        // What nobody can tell is not nothing.
        let remaining = rest.flatMap { $0.isUnknown ? nil : $0.waiting }
        if output.json {
            Terminal.say(json: [
                "stored": .count(stored), "duplicates": .count(duplicates), "dead_lettered": .count(deadLettered),
                "remaining": .optional(remaining.map(Int64.init)),
                "remaining_for_others": .optional((rest?.waitingForOthers).map(Int64.init)),
                "owned_files": .count(rest?.unopened.owned.count ?? 0), "unusable_files": .count(rest?.unopened.unusable.count ?? 0),
                "recovering_files": .count(rest?.recovering ?? 0), "damaged_files": .count(damages.count),
                "lost": damages.contains { $0.lost == nil } ? .null : .count(damages.reduce(0) { $0 + ($1.lost ?? 0) }),
                "failure": .optional(failure),
            ])
        } else {
            let left = remaining.map { "\($0)" } ?? "an unknown number"
            Terminal.say("\(stored) stored, \(duplicates) duplicates, \(deadLettered) dead letters, \(left) remaining")
            if let failure { Terminal.complain(failure) }
        }
        guard let rest else {
            Terminal.complain("whether anything remains is not known: the disk did not answer in time")
            throw ExitCode.undelivered
        }
        rest.complain(in: queue.directory)
        Terminal.complain(of: damages + rest.damages)
        if !rest.unopened.unusable.isEmpty { throw ExitCode.failure }
        let isDone = remaining == 0 && rest.waitingForOthers == 0 && rest.recovering == 0 && failure == nil
        if !isDone || (damages + rest.damages).contains(where: \.mayHaveLost) { throw ExitCode.undelivered }
        if deadLettered > 0 { throw ExitCode.deadLettered }
    }

    /// What is left in the directory.
    private struct Rest: Sendable {
        var unopened = UnopenedFiles()
        /// Files of running processes in which something waits, or may wait.
        var holding: [Int] = []
        var waiting = 0
        /// Of other servers and keys.
        var waitingForOthers = 0
        /// Which those are.
        var others: Set<EventID> = []
        /// Of these nobody knows yet how many events they hold.
        var recovering = 0
        /// Of files of other servers and keys that turned out to be damaged as they were looked into.
        var damages: [QueueDamage] = []
        /// A running process holds a file and does not say how many wait there, or the directory cannot be listed.
        var isUnknown = false

        init(_ directory: QueueDirectory, _ destinations: Set<EventID>) {
            guard let numbers = try? directory.numbers() else {
                isUnknown = true
                return
            }
            for number in numbers {
                let note = FileClaim.note(of: number, in: directory)
                let isOurs = note.map { destinations.contains($0.destination) } ?? true
                // Nothing of another's that is clean has to be looked into.
                if !isOurs, note?.isClean == true { continue }
                if let file = unopened.open(number, in: directory) {
                    add(Int(file.counters.waiting), file.isRecovering, isOurs, note)
                    if !isOurs, let damage = file.latestDamage { damages.append(damage) }
                    file.close()
                } else if unopened.owned.last == number {
                    let status = FileStatus.read(number, in: directory)
                    add(Int(status?.waiting ?? 0), status?.recovering ?? false, isOurs, note)
                    if status == nil { isUnknown = true }
                    if status.map({ $0.waiting > 0 || $0.recovering }) ?? true { holding.append(number) }
                }
            }
        }

        private mutating func add(_ count: Int, _ isRecovering: Bool, _ isOurs: Bool, _ note: FileClaim.FileNote?) {
            if isOurs { waiting += count } else { waitingForOthers += count }
            if !isOurs, count > 0, let note { others.insert(note.destination) }
            if isRecovering { recovering += 1 }
        }

        func complain(in directory: QueueDirectory) {
            unopened.complain(of: "what waits", inOwned: holding)
            if isUnknown { Terminal.complain("how many events wait there is not known: try again, or ask that process") }
            if recovering > 0 { Terminal.complain("more is still to be recovered from damaged files; the next hapax flush goes on") }
            if waitingForOthers > 0 {
                if let failure = directory.projectsFailure {
                    Terminal.complain("\(failure), by which what waits under a rotated key is sent with the new one")
                }
                let destinations = Destinations(in: directory)
                let id = others.count == 1 ? others.first.map { "\($0)" } ?? "ID" : "ID"
                Terminal.complain(
                    """
                    \(waitingForOthers) events wait for another server or key: \(destinations.names(others)). To send them here: hapax flush --replaces \(id); \
                    to delete them: hapax queue purge --destination \(id)
                    """)
            }
        }
    }
}
