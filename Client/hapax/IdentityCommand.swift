import ArgumentParser
import HapaxClient
import HapaxModel

struct IdentityCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "identity",
        abstract: "Shows or changes whom the queue's events concern, and whether they are taken.",
        discussion: """
            An event that does not say whom it concerns (track --distinct-id) concerns the login id, else the queue's anonymous id. Both, \
            and what the user has agreed to, are kept in the queue's directory. A change holds for events tracked from then on; what waits stays as it is. \
            A process that runs learns of a login at its next start, of an opt-out with its next event and before its next request.

            Examples:
              hapax identity show --json
              hapax identity login customer-17
              hapax identity opt-out
            """,
        subcommands: [Show.self, Login.self, Logout.self, Reset.self, OptOut.self, OptIn.self, Pending.self])

    /// What each change's help says.
    static let changeDiscussion = """
        Durable on return, through a power cut too; makes the directory if there is none. Exits with 0 if done, 1 if it cannot be used; \
        then nothing has changed.
        """

    struct Show: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "The login id, the anonymous id and whether events are taken.",
            discussion: """
                Looks only. Exits with 0, or with 1 if the directory cannot be read.

                Example:
                  hapax identity show --json
                """)

        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try IdentityCommand.printIdentity(try Terminal.working { try IdentityFile(queue.directory).read() }, queue, output)
        }
    }

    struct Login: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "From now on events concern this user.",
            discussion: changeDiscussion + "\n\nExample:\n  hapax identity login customer-17")

        @Argument(help: "1 to 200 bytes of UTF-8.")
        var id: String
        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            if !(1...EventLimits.maximumDistinctIDBytes).contains(id.utf8.count) {
                throw ValidationError("\(TrackError.refused(.invalidID)).")
            }
        }

        func run() async throws {
            try IdentityCommand.change(queue, output) { $0.loginID = id }
        }
    }

    struct Logout: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "From now on events concern the anonymous id.",
            discussion: changeDiscussion + "\n\nExample:\n  hapax identity logout")

        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try IdentityCommand.change(queue, output) { $0.loginID = nil }
        }
    }

    struct Reset: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "For another person: a new anonymous id, and no login id.",
            discussion: "What an app's client.reset() does: it also forgets the app's common properties. " + changeDiscussion
                + "\n\nExample:\n  hapax identity reset")

        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            var ids = UUIDv7Generator()
            let id = ids.next(unixMilliseconds: SystemClock().unixMilliseconds).description
            try IdentityCommand.change(queue, output) { $0 = KeptIdentity(anonymousID: id) }
        }
    }

    struct OptOut: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Refuses events from now on, until opt-in.",
            discussion: """
                track then exits with 1 and stores nothing. What was stored while consent was pending is deleted with the next command or by the process \
                that holds it; what waited before stays and is delivered; see queue purge. import sends a file's events \
                as they are and does not ask the queue. 
                """ + changeDiscussion + "\n\nExample:\n  hapax identity opt-out && hapax queue purge")

        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try IdentityCommand.set(.denied, queue, output)
        }
    }

    struct OptIn: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Takes events again.",
            discussion: changeDiscussion + "\n\nExample:\n  hapax identity opt-in")

        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try IdentityCommand.set(.granted, queue, output)
        }
    }

    struct Pending: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Takes events and sends none, until opt-in or opt-out.",
            discussion: """
                Commands that send then exit with 2. opt-in sends what has waited, opt-out deletes it. 
                """ + changeDiscussion + "\n\nExample:\n  hapax identity pending")

        @OptionGroup var queue: QueueOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try IdentityCommand.set(.pending, queue, output)
        }
    }

    private static func change(
        _ queue: QueueOptions, _ output: OutputOptions, _ change: (inout KeptIdentity) -> Void
    ) throws {
        let identity = try Terminal.working {
            try queue.directory.make()
            return try IdentityFile(queue.directory).change(change)
        }
        try printIdentity(identity, queue, output)
    }

    private static func set(_ consent: Consent, _ queue: QueueOptions, _ output: OutputOptions) throws {
        let identity = try Terminal.working {
            try queue.directory.make()
            try queue.directory.setConsent(consent)
            return try IdentityFile(queue.directory).read()
        }
        try printIdentity(identity, queue, output)
    }

    private static func printIdentity(_ identity: KeptIdentity?, _ queue: QueueOptions, _ output: OutputOptions) throws {
        let consent = try Terminal.working { try queue.directory.consent }
        if output.json {
            return Terminal.say(json: [
                "distinct_id": .optional(identity?.distinctID), "login_id": .optional(identity?.loginID),
                "anonymous_id": .optional(identity?.anonymousID), "opted_out": .bool(consent == .denied),
                "consent": .string(consent.rawValue),
            ])
        }
        if identity == nil { Terminal.say("the queue has no anonymous id yet; its first use makes one") }
        if let identity {
            Terminal.say("events concern  \(Terminal.printable(identity.distinctID))")
            Terminal.say("login id        \(Terminal.printable(identity.loginID ?? "none"))")
            Terminal.say("anonymous id    \(Terminal.printable(identity.anonymousID))")
        }
        let words: [Consent: String] = [
            .granted: "taken", .pending: "taken and not sent (consent pending)", .denied: "refused (opted out)",
        ]
        Terminal.say("events are      \(words[consent] ?? consent.rawValue)")
    }
}
