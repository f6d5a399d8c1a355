import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

struct OutputOptions: ParsableArguments {
    @Flag(help: "Print one JSON object (or one on each line) instead of text.")
    var json = false
}

/// Of commands that list what may be long.
struct PageOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Show so many at most.", valueName: "count"))
    var limit = 100

    @Option(help: ArgumentHelp("Only those after this one, as the list names it.", valueName: "file-number"))
    var after: RowName?

    func validate() throws {
        if limit < 1 { throw ValidationError("--limit must be at least 1.") }
    }
}

struct QueueOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The queue's directory.",
            discussion: """
                What waits in it for one server and key is sent there by any command that has them; what waits for others is left alone. \
                Default: $HAPAX_QUEUE, else hapax in $STATE_DIRECTORY, $XDG_STATE_HOME or ~/.local/state.
                """, valueName: "directory"),
        completion: .directory)
    var queue: String?

    var path: String {
        if let queue = queue ?? environment("HAPAX_QUEUE") { return queue }
        return EventClient.Configuration.commandQueueDirectory.path
    }

    func validate() throws {
        // As from a variable of a script that is not set: the queue's files would lie in the working directory.
        if queue?.isEmpty == true { throw ValidationError("The queue's directory has no name.") }
        if queue == nil, environment("HAPAX_QUEUE") == nil, let home = EventClient.Configuration.missingHome {
            throw ValidationError("The home directory \(home) does not exist. Give --queue or set HAPAX_QUEUE.")
        }
    }

    var directory: QueueDirectory { QueueDirectory(path: path) }
}

struct ServerOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The server's base URL. Default: $HAPAX_SERVER.", valueName: "url"))
    var server: String?

    @Option(help: ArgumentHelp("The project's write key. Default: $HAPAX_KEY, else what is in the file $HAPAX_KEY_FILE.", valueName: "key"))
    var key: String?

    @Option(
        help: ArgumentHelp(
            """
            What waits for another server or key, and is to be sent here: its id or its key's beginning as hapax status shows them, or the old URL \
            and key, with a blank between them. May be repeated. Default: $HAPAX_REPLACES, such pairs one behind the other.
            """, valueName: "destination"))
    var replaces: [String] = []

    func validate() throws { _ = try replaced() }

    /// Each in one word, or as a URL and a key.
    private func replaced() throws -> [[String]] {
        if replaces.isEmpty {
            let words = (environment("HAPAX_REPLACES") ?? "").split(whereSeparator: \.isWhitespace).map(String.init)
            guard words.count.isMultiple(of: 2) else {
                throw ValidationError("HAPAX_REPLACES holds pairs: a server's URL and a write key, with blanks between them.")
            }
            return stride(from: 0, to: words.count, by: 2).map { [words[$0], words[$0 + 1]] }
        }
        return try replaces.map { text in
            let words = text.split(whereSeparator: \.isWhitespace).map(String.init)
            guard words.count == 1 || words.count == 2 else {
                throw ValidationError("What is replaced is named by one word, or by a server's URL and a write key, a blank between them.")
            }
            return words
        }
    }

    private func keyOfEnvironment() throws -> String? {
        do throws(StartError) { return try EventClient.Configuration.writeKey(ProcessInfo.processInfo.environment) } catch {
            throw ValidationError("\(error)")
        }
    }

    func configuration(queue: QueueOptions) throws -> EventClient.Configuration {
        guard let server = server ?? environment("HAPAX_SERVER") else {
            throw ValidationError("Where to? Give --server or set HAPAX_SERVER.")
        }
        guard let key = try key ?? keyOfEnvironment() else {
            throw ValidationError("With which write key? Set HAPAX_KEY or HAPAX_KEY_FILE, or give --key.")
        }
        var configuration = EventClient.Configuration(server: server, writeKey: key, queueDirectory: queue.path)
        configuration.uploads.interval = nil
        // A script's events hold what the script says.
        configuration.automatic.properties = false
        let own: Set<EventID>
        do throws(StartError) { own = try configuration.endpoint().destinations } catch { throw ValidationError("\(error)") }
        for words in try replaced() {
            if words.count == 2 {
                configuration.replaces.append(.init(server: EventClient.Configuration.url(words[0]), writeKey: words[1]))
            } else if let id = try queue.destination(words[0], besides: own)?.id {
                configuration.replacedDestinations.insert(id)
            }
        }
        do throws(StartError) { _ = try configuration.destinations() } catch {
            throw ValidationError("What is replaced: \(error)")
        }
        return configuration
    }
}

/// nil also for an empty value, as for a variable that a script set to nothing.
func environment(_ name: String) -> String? {
    ProcessInfo.processInfo.environment[name].flatMap { $0.isEmpty ? nil : $0 }
}

extension OpenClient {
    /// Starts a client, or ends the command with a message.
    static func startForCommand(_ configuration: EventClient.Configuration) throws -> OpenClient {
        do throws(StartError) { return try start(configuration) } catch {
            Terminal.complain("\(error)")
            throw ExitCode.failure
        }
    }
}
