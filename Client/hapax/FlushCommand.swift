import ArgumentParser
import HapaxClient
import HapaxModel

struct FlushCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "flush",
        abstract: "Delivers what is stored.",
        discussion: """
            Sends batch after batch until the queue, and what was stored beside it, is empty, an attempt fails, or the time is over; \
            a look at what is left beside it takes up to 5 seconds more. \
            An event leaves the queue only when the server has acknowledged it; stopping this command loses nothing.

            Exits with 0 if nothing is left, 1 if what was stored beside the queue cannot be read, 2 if something is left, 3 if events \
            became dead letters, 75 if another process works on the queue.

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
        let client = try EventClient.startForCommand(try server.configuration(queue: queue), queue)
        let report = await client.finalFlush(within: .seconds(timeout))
        client.complainOfRedirection()
        _ = await client.shutdown(within: .zero)
        let directory = queue.directory
        let spools = await TimeLimit.result(after: .seconds(5)) { SpoolSurvey(of: directory) } ?? .outOfTime(directory)
        // What another process is still working on beside the queue is not delivered either.
        let remaining = report.remaining + Int(spools.depth)
        if output.json {
            Terminal.say(json: [
                "stored": .count(report.stored), "duplicates": .count(report.duplicates), "dead_lettered": .count(report.deadLettered),
                "remaining": .count(remaining), "unusable_spools": .count(spools.unusable.count),
                "failure": .optional(report.failure.map { "\($0)" }),
            ])
        } else {
            Terminal.say(
                "\(report.stored) stored, \(report.duplicates) duplicates, \(report.deadLettered) dead letters, \(remaining) remaining"
            )
            if let failure = report.failure { Terminal.complain("\(failure)") }
        }
        spools.complain()
        if !spools.unusable.isEmpty { throw ExitCode.failure }
        if remaining > 0 || report.failure != nil { throw ExitCode.undelivered }
        if report.deadLettered > 0 { throw ExitCode.deadLettered }
    }
}
