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

            Exits with 0 if nothing is left, 1 if a file of the queue cannot be used, 2 if something is left, also with running processes, 3 if events \
            became dead letters.

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
        let client = try EventClient.startForCommand(configuration)
        let flush = await client.finalFlush(within: .seconds(timeout))
        _ = await client.shutdown(within: .zero)
        let rest = await TimeLimit.result(after: .seconds(5)) { [directory = queue.directory] in Rest(directory, destinations) } ?? Rest()
        let (report, counts) = (flush.own, flush.leftovers?.counts ?? DeliveryCounts())
        let failure = report.failure ?? flush.leftovers?.failure
        let (stored, duplicates) = (report.stored + counts.stored, report.duplicates + counts.duplicates)
        let deadLettered = report.deadLettered + counts.deadLettered
        let remaining = rest.waiting
        if output.json {
            Terminal.say(json: [
                "stored": .count(stored), "duplicates": .count(duplicates), "dead_lettered": .count(deadLettered),
                "remaining": .count(remaining), "owned_files": .count(rest.unopened.owned.count),
                "unusable_files": .count(rest.unopened.unusable.count), "recovering_files": .count(rest.recovering),
                "failure": .optional(failure.map { "\($0)" }),
            ])
        } else {
            Terminal.say("\(stored) stored, \(duplicates) duplicates, \(deadLettered) dead letters, \(remaining) remaining")
            if let failure { Terminal.complain("\(failure)") }
        }
        Terminal.complain(ofOthers: flush.leftovers)
        rest.unopened.complain(of: "what waits")
        if rest.recovering > 0 { Terminal.complain("more is still to be recovered from damaged files; the next hapax flush goes on") }
        if !rest.unopened.unusable.isEmpty { throw ExitCode.failure }
        if remaining > 0 || rest.recovering > 0 || failure != nil { throw ExitCode.undelivered }
        if deadLettered > 0 { throw ExitCode.deadLettered }
    }

    /// What is left for the server.
    private struct Rest: Sendable {
        var unopened = UnopenedFiles()
        var waiting = 0
        /// Of these nobody knows yet how many events they hold.
        var recovering = 0

        init() {}

        init(_ directory: QueueDirectory, _ destinations: Set<EventID>) {
            for number in (try? directory.numbers()) ?? [] {
                let note = FileClaim.note(of: number, in: directory)
                guard note.map({ destinations.contains($0.destination) }) ?? true else { continue }
                if let file = unopened.open(number, in: directory) {
                    waiting += Int(file.counters.waiting)
                    if file.isRecovering { recovering += 1 }
                    file.close()
                } else if let status = FileStatus.read(number, in: directory) {
                    waiting += Int(status.waiting)
                }
            }
        }
    }
}
