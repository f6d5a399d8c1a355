import ArgumentParser
import Foundation
import TestSupport
import Testing

@testable import HapaxClient
@testable import hapax

/// Where a command looks for its queue, and what it makes of an environment that is not as it should be.
@Suite("hapax, where it finds its queue", .endsWhenItHangs)
struct CommandSurroundingsTests {
    private let directory = TemporaryDirectory()

    private func run(_ script: String, _ environment: [String: String] = [:]) async throws -> (status: ChildProcess.Exit, error: String) {
        // Of standard output the end can be waited for.
        let process = try ChildProcess(
            "/bin/sh", ["-c", "exec 2>&1 >/dev/null\n" + script, try PackageLayout.executable("hapax")],
            environment: ["HAPAX_SERVER": "http://127.0.0.1:1", "HAPAX_KEY": "secret-key"].merging(environment) { $1 })
        let errors = await process.remainingLines().joined(separator: "\n")
        return (await process.waitUntilExit(), errors)
    }

    @Test("by default the queue is below $HOME, as the help says; a relative $XDG_STATE_HOME is none", arguments: ["", "state"])
    func homeIsObeyed(state: String) async throws {
        let home = directory.path("home")
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: false)
        let unset = ["HAPAX_QUEUE": "", "XDG_STATE_HOME": state]
        let (status, _) = try await run(#"exec "$0" track e --no-flush"#, unset.merging(["HOME": home]) { $1 })
        #expect(status == .exited(0))
        #expect(FileManager.default.fileExists(atPath: home + "/.local/state/hapax/1.sqlite"))
    }

    @Test("--queue goes before $HAPAX_QUEUE, that before $XDG_STATE_HOME, and that before $HOME, as the help says")
    func placesHaveAnOrder() async throws {
        let places = ["option", "variable", "state", "home"].map { directory.path($0) }
        let queues = [places[0], places[1], places[2] + "/hapax", places[3] + "/.local/state/hapax"]
        try FileManager.default.createDirectory(atPath: places[3], withIntermediateDirectories: false)
        let variables = ["HAPAX_QUEUE": places[1], "XDG_STATE_HOME": places[2], "HOME": places[3]]
        for (index, unset) in [[], ["HAPAX_QUEUE"], ["HAPAX_QUEUE", "XDG_STATE_HOME"]].enumerated() {
            let environment = variables.merging(unset.map { ($0, "") }) { $1 }
            #expect(try await run(#"exec "$0" track e --no-flush"#, environment).status == .exited(0))
            #expect(queues.map { FileManager.default.fileExists(atPath: $0) } == queues.indices.map { (1...index + 1).contains($0) })
        }
        let script = #"exec "$0" track e --no-flush --queue "$OPTION""#
        #expect(try await run(script, variables.merging(["OPTION": places[0]]) { $1 }).status == .exited(0))
        #expect(FileManager.default.fileExists(atPath: queues[0]))
    }

    @Test("a queue without a name, as from a variable that is not set, is a usage error")
    func emptyNameIsRefused() async throws {
        let (status, error) = try await run(#"cd "$PLACE" && exec "$0" track e --no-flush --queue """#, ["PLACE": directory.path])
        #expect(status == .exited(64) && error.contains("has no name"))
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).isEmpty)
    }

    @Test("a variable that is not UTF-8 is refused: repaired, two directories would be one queue")
    func environmentIsUTF8() async throws {
        let script = #"HAPAX_QUEUE="$PLACE/$(printf '\377')" exec "$0" track e --no-flush"#
        let (status, error) = try await run(script, ["PLACE": directory.path])
        #expect(status == .exited(64) && error.contains("HAPAX_QUEUE is not UTF-8"))
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).isEmpty)
    }

    @Test("an empty key, as from a variable that is not set, would make one event of many: a usage error (R6)")
    func emptyKeyIsRefused() async throws {
        let (status, error) = try await run(
            #"exec "$0" track order --derive-id "$UNSET" --no-flush"#, ["HAPAX_QUEUE": directory.path("queue")])
        #expect(status == .exited(64) && error.contains("--derive-id is empty"))
    }

    @Test("--power is obeyed: what the command starts flushes the disk (I6)")
    func powerIsObeyed() throws {
        let place = ["--server", "http://127.0.0.1:1", "--key", "k", "--queue", directory.path]
        #expect(try TrackCommand.parse(["e", "--power"] + place).configuration().queue.durability == .power)
        #expect(try TrackCommand.parse(["e"] + place).configuration().queue.durability == .process)
    }

    @Test("a command that changes the queue says that it is done once that survives a power cut (I6)")
    func changesAreDurable() throws {
        try QueueFile.open(directory.path).close()
        var unopened = UnopenedFiles()
        let opened = unopened.open(1, in: QueueDirectory(path: directory.path))
        let file = try #require(opened)
        #expect(file.durability == .power)
        file.close()
    }
}
