import Foundation

/// `hapax-bench [server|client|edge|all] [--events N] [--rounds N]`
@main
enum HapaxBench {
    static let usage = """
        usage: hapax-bench [server|client|edge|all] [--events N] [--rounds N]

          server   events per second until acknowledged, beside what the database itself can take
          client   track, store and drain, beside what raw SQLite can take
          edge     what slow senders, idle ones and a crowd cost everybody else
          --events events of one measurement (default 100000)
          --rounds measurements of each kind, interleaved; medians are printed (default 3)

        Prints Markdown tables. Build it and hapax-server with -c release, or the figures mean nothing.
        """

    static func main() async throws {
        var part = "all"
        var events = 100_000
        var rounds = 3
        var arguments = Array(CommandLine.arguments.dropFirst())
        while !arguments.isEmpty {
            let argument = arguments.removeFirst()
            switch argument {
            case "server", "client", "edge", "all": part = argument
            case "hold" where arguments.count == 1: return try await Footprint.hold(arguments[0])
            case "--events", "--rounds":
                guard let value = arguments.first.flatMap({ Int($0) }), value > 0, value <= 10_000_000 else { fail() }
                arguments.removeFirst()
                if argument == "--events" { events = value } else { rounds = value }
            default: fail()
            }
        }
        printMachine()
        if part == "edge" || part == "all" { try await EdgeBenchmark(events: events, rounds: rounds).run() }
        if part == "edge" { return }
        if part != "client" { try await ServerBenchmark(events: events, rounds: rounds).run() }
        if part != "server" { try await ClientBenchmark(events: events, rounds: rounds).run() }
    }

    private static func printMachine() {
        let information = ProcessInfo.processInfo
        let memory = information.physicalMemory / (1 << 30)
        let date = Date.now.formatted(.iso8601.year().month().day())
        print("\(date), \(information.activeProcessorCount) cores, \(memory) GiB, \(information.operatingSystemVersionString)")
    }

    private static func fail() -> Never {
        note(usage)
        exit(64)
    }
}
