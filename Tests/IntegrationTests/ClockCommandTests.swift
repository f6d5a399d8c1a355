import TestSupport
import Testing

@Suite("hapax-server clock (S2)", .endsWhenItHangs)
struct ClockCommandTests {
    private static func run(_ arguments: [String], _ environment: [String: String]) async throws -> (exit: ChildProcess.Exit, note: String)
    {
        let child = try ChildProcess("hapax-server", arguments, environment: environment)
        _ = await child.remainingOutput()
        return (await child.waitUntilExit(), await child.remainingErrors())
    }

    @Test("Accepts the clock and moves marks back, on either store; the embedded one's only while no server runs")
    func marksAreMoved() async throws {
        let directory = TemporaryDirectory()
        let uri = try await PostgresCluster.shared.makeDatabase()
        for store in ["sqlite:\(directory.path("events.sqlite"))", uri] {
            let environment = ["HAPAX_STORE": store, "HAPAX_PORT": "0", "HAPAX_LOG_LEVEL": "critical"]
            #expect(try await Self.run(["projects", "add", "shop"], environment).exit == .exited(0))
            let accepted = try await Self.run(["clock", "accept"], environment)
            #expect(accepted.exit == .exited(0) && accepted.note.hasPrefix("The clock shows 2"), "\(accepted)")
            let reset = try await Self.run(["clock", "reset"], environment)
            #expect(reset.exit == .exited(0) && reset.note.contains("0 events seemed to be later"), "\(reset)")
            #expect(try await Self.run(["clock"], environment).exit == .exited(0), "its help")
            let server = try ChildProcess("hapax-server", environment: environment)
            _ = try await server.line(after: "listening on")
            #expect(try await Self.run(["clock", "accept"], environment).exit == .exited(store == uri ? 0 : 1))
            server.terminate()
            _ = await server.waitUntilExit()
        }
    }
}
