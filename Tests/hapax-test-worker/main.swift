import Foundation
import HapaxClient
import HapaxModel

// A client in a process of its own, to be killed by tests.

func fail(_ message: String, code: Int32) -> Never {
    FileHandle.standardError.write(Data((message + "\n").utf8))
    exit(code)
}

/// Exit codes: 0 done, 2 something is left, 64 usage, 69 the client did not start, 74 the store failed.
let arguments: WorkerArguments
do {
    arguments = try WorkerArguments(Array(CommandLine.arguments.dropFirst()))
} catch {
    fail("\(error)", code: 64)
}

var configuration = EventClient.Configuration(
    server: arguments.server, writeKey: arguments.key, queueDirectory: arguments.queue)
configuration.queue.durability = arguments.durability
configuration.uploads.bulkSize = arguments.bulkSize
configuration.distinctID = "worker"
configuration.debug.isOn = arguments.debugs

let client: OpenClient
do {
    client = try OpenClient.start(configuration)
} catch {
    fail("\(error)", code: 69)
}

switch arguments.command {
case .track: exit(await Worker(client: client, arguments: arguments).track())
case .drain: exit(await Worker(client: client, arguments: arguments).drain())
}
