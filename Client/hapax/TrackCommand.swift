import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct TrackCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "track",
        abstract: "Stores one event, then tries to deliver it.",
        discussion: """
            Prints the event's id, as soon as it is on disk (with --json at the end). Exits with 0 once the event is on disk, delivered or not: what could not be delivered within the time \
            is sent by the next command that uploads. It then survives kill -9, with --power a power cut. Exits with 3 if the event breaks \
            a limit, was refused, or another one has its id; it is in the dead letters then. Exits with 1 if nothing was stored: the queue cannot be used, or the \
            user has opted out (see identity). Interrupted before it has printed an id, or with --json, it may have stored the event or \
            not: give an id to run it again with.

            Values have types: name=text is a string, name:=json a number (whole ones keep all digits, others are rounded to a \
            double), true, false, null, a list or an object.

            For an event that your script may send twice, give --derive-id with what it is about (an order's number, a file's name and \
            date): the same name and key make the same event, which the server stores once.

            Examples:
              hapax track backup_finished --property host=db1 --property bytes:=73400320
              hapax track order_paid --derive-id 4711 --property 'items:=["a","b"]'
            """)

    @Argument(help: "What happened, 1 to 200 bytes of UTF-8.")
    var name: String

    @Option(
        name: [.long, .short],
        help: ArgumentHelp(
            "A property: name=text, or name:=json for numbers, booleans, lists and objects. Repeatable; the last of a name wins.",
            valueName: "name=value"))
    var property: [String] = []

    @Option(
        help: ArgumentHelp(
            """
            The event's own id; the server stores each id once. Another event of this id becomes a dead letter, except under a UUID of \
            version 8: such ids are derived, and one of them always means the same event.
            """, valueName: "uuid"))
    var id: EventID?

    @Option(help: ArgumentHelp("Makes the id from NAME and this key, always the same one.", valueName: "key"))
    var deriveID: String?

    @Option(
        name: .customLong("distinct-id"),
        help: ArgumentHelp("Whom it concerns. Default: the login id, else the queue's own id; see identity.", valueName: "id"))
    var distinctID: String?

    @Option(help: ArgumentHelp("When it happened: Unix milliseconds or RFC 3339. Default: now.", valueName: "time"))
    var time: TimeArgument?

    @Option(help: ArgumentHelp("Seconds to try to deliver.", valueName: "seconds"))
    var timeout = 10

    @Flag(help: "Only store it.")
    var noFlush = false

    @Flag(help: "Survive a power cut: flush the disk before exiting.")
    var power = false

    @OptionGroup var server: ServerOptions
    @OptionGroup var queue: QueueOptions
    @OptionGroup var output: OutputOptions

    private func properties() throws -> Properties {
        var properties: [String: PropertyValue] = [:]
        for property in try property.map({ try PropertyArgument.parse($0) }) {
            if properties.holdsLookalike(of: property.name) {
                throw ValidationError("The name of property '\(property.name)' is given in two spellings that look the same.")
            }
            properties[property.name] = property.value
        }
        return Properties(properties)
    }

    func validate() throws {
        _ = try properties()
        // As from a variable of a script that is not set: unlike events would become one.
        if deriveID?.isEmpty == true { throw ValidationError("The key of --derive-id is empty.") }
        if id != nil && deriveID != nil { throw ValidationError("Give --id or --derive-id, not both.") }
        if timeout < 0 { throw ValidationError("--timeout cannot be negative.") }
    }

    func configuration() throws -> EventClient.Configuration {
        var configuration = try server.configuration(queue: queue)
        configuration.queue.durability = power ? .power : .process
        return configuration
    }

    /// What other commands have left behind is sent as well, but not for ever.
    private static let leftoversTime: Duration = .seconds(2)

    func run() async throws {
        let client = try OpenClient.startForCommand(try configuration())
        let properties = try properties()
        let chosen = id ?? deriveID.map { EventID.derived(name: name, key: $0) }
        // Known whatever happens: who runs the command again with it makes no second event.
        var ids = UUIDv7Generator()
        let id = chosen ?? ids.next(unixMilliseconds: SystemClock().unixMilliseconds)
        // Of what this run does with it: neither an old dead letter of this id says anything, nor what becomes of another event that was given it
        // and lies beside the queue or in a file that was set aside.
        let fate = Task { [deliveries = client.ownDeliveries(bufferLimit: 100_000)] in await Self.fate(of: id, deliveries) }
        let stored: EventID
        let deadLettersBefore = await client.status().deadLettered
        do throws(TrackError) {
            stored = try await client.trackDurably(
                name, properties: properties, id: id, time: (time?.unixMilliseconds).map(Date.init(unixMilliseconds:)),
                distinctID: distinctID)
        } catch {
            try await end(client, fate, notStored: id, error)
            return
        }
        // Before anything that may take its time: a script that is interrupted then knows what it has.
        let unsaid = output.json ? nil : Terminal.attempt(Array("\(stored)\n".utf8))
        // Those that the flush makes are others then.
        let isDeadLetterAlready = await client.status().deadLettered > deadLettersBefore
        var report: FlushReport?
        if !noFlush && timeout > 0 {
            let flush = await client.finalFlush(within: .seconds(timeout), leftovers: Self.leftoversTime, cutsRests: false)
            report = flush.own
            Terminal.complain(ofOthers: flush.leftovers)
        }
        let status = await client.status()
        let damaged = status.damage == nil ? .none : await Self.damagedDeadLetter(of: stored, client)
        _ = await client.shutdown(within: .zero)
        if let unsaid { Terminal.exit(after: unsaid) }
        var told = await fate.value
        if case .found(let letter) = damaged { told.deadLetter = told.deadLetter ?? letter }
        told.isOfFlush = !isDeadLetterAlready
        Terminal.complain(of: [status.damage].compactMap(\.self))
        told.detail = client.latestDetail
        // Without an attempt nothing has failed now.
        if report?.failure == nil { told.resting = client.notedFailure }
        tell(stored, report, told)
        if told.deadLetter != nil { throw ExitCode.deadLettered }
        if case .unknown = damaged {
            Terminal.complain(
                "whether the event is in the dead letters is not known: the queue cannot be read; see hapax dead-letters list")
            throw ExitCode.undelivered
        }
    }

    /// A commit that has failed may still succeed while the client ends: then it is on disk after all.
    private func end(
        _ client: OpenClient, _ fate: Task<Fate, Never>, notStored id: EventID, _ error: TrackError
    ) async throws {
        let report = await client.shutdown(within: .zero)
        guard case .notStored = error else {
            Terminal.complain(
                error == .refused(.optedOut) ? "not stored: the user has opted out; see hapax identity" : "not stored: \(error)")
            throw ExitCode.failure
        }
        guard report.lost == 0, !client.mayLoseInPowerCut else {
            Terminal.complain("not stored\(report.lost == 0 ? " for sure" : ""): \(error); try again with --id \(id)")
            throw ExitCode.failure
        }
        if !output.json { Terminal.say(id.description) }
        let told = await fate.value
        tell(id, nil, told)
        if told.deadLetter != nil { throw ExitCode.deadLettered }
        Terminal.complain("stored, not delivered yet: \(error)")
    }

    private static func fate(of id: EventID, _ deliveries: EventDeliveries) async -> Fate {
        var fate = Fate()
        for await delivery in deliveries {
            switch delivery {
            case .stored(id), .duplicate(id): fate.isDelivered = true
            // The first: the flush may reject another one that was given this id.
            case .rejected(id, let reason, let detail): fate.deadLetter = fate.deadLetter ?? Letter(reason: reason, detail: detail)
            default: continue
            }
        }
        return fate
    }

    /// What became of the event while this command ran.
    private struct Fate: Sendable {
        var isDelivered = false
        var deadLetter: Letter?
        /// Whether a letter was made by the flush, which counts it.
        var isOfFlush = false
        /// What the server said as it refused it.
        var detail: String?
        /// Why the server is not asked again yet.
        var resting: String?
    }

    /// The file was damaged under this command: its event may be one whose bytes changed.
    private static func damagedDeadLetter(of id: EventID, _ client: OpenClient) async -> Look {
        guard case .success(let found)? = await TimeLimit.result(after: .seconds(2), of: { Result { try client.deadLetter(of: id) } })
        else { return .unknown }
        guard let found, !found.holdsWhatWasTracked else { return .none }
        return .found(Letter(reason: found.reason, detail: found.detail))
    }

    private enum Look {
        case none
        case found(Letter)
        case unknown
    }

    private struct Letter: Sendable {
        var reason: String
        var detail: String
    }

    private func tell(_ id: EventID, _ report: FlushReport?, _ fate: Fate) {
        let deadLetter = fate.deadLetter
        let others = max((report?.deadLettered ?? 0) - (deadLetter != nil && fate.isOfFlush ? 1 : 0), 0)
        let delivered = deadLetter == nil && (fate.isDelivered || report?.remaining == 0)
        // Without an attempt nothing has failed.
        let isResting = report.map { !delivered && deadLetter == nil && $0.failure == nil } ?? false
        let failure =
            report?.failure?.text(timeout: timeout, fate.detail)
            ?? (isResting ? "the server is not asked again so soon after a failure" + (fate.resting.map { ": " + $0 } ?? "") : nil)
        if output.json {
            Terminal.say(json: [
                "event_id": .string(id.description), "delivered": .bool(delivered), "dead_letter": .optional(deadLetter?.reason),
                "detail": .optional(deadLetter?.detail),
                "failure": .optional(failure), "others_dead_lettered": .count(others),
            ])
            return
        }
        // Nobody else would tell: the next flush counts its own.
        if others > 0 { Terminal.complain("\(others) other events became dead letters; see hapax dead-letters list") }
        if let deadLetter {
            Terminal.complain("the event is in the dead letters: \(deadLetter.reason): \(deadLetter.detail)")
        } else if let failure {
            Terminal.complain("\(delivered ? "delivered; other events are not" : "stored, not delivered yet"): \(failure)")
        }
    }
}
