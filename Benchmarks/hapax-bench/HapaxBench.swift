import Foundation

@main
enum HapaxBench {
    static let usage = """
        usage: hapax-bench [server|client|edge|attacks|links|reads|flat|erase|books|sizes|senders|all] [--events N] [--rounds N] [--days N] [--per-day N] [--pinned] [--peer] [--tls] [--keys] [--books]

          server   events per second until acknowledged, beside what the database itself can take
          client   track, store and drain, beside what raw SQLite can take
          links    how a queue drains over a slow link, a long one, a proxy with a limit; only if it is named
          edge     what slow senders, idle ones and a crowd cost everybody else
          attacks  of edge, only what costs its sender little and the server much
          reads    reports, lists, export, and what they cost ingest; only if it is named: 20 GB and a quarter of an hour
          flat     ingest beside as much stored data as reads has, and planning with many months; only if it is named
          erase    how long erasing a user and emptying a month take among as much, and what senders notice; only if it is named
          books    what installs' books add to a group's transaction; only if it is named
          sizes    what an event takes on disk, and a server in memory and connections; only if it is named
          senders  what an event of another vendor's SDK costs the server; only if it is named
          --events events of one measurement (default 100000)
          --days, --per-day
                   what was stored before reads, flat and erase (default 20 days of 1000000)
          --pinned of server: PostgreSQL has the second core for itself, load and server the first
          --peer   of server: the FastAPI server of Benchmarks/peer-fastapi beside it, which is installed below .build
          --tls    of server: the cost of TLS
          --keys   of server: the cost of keys in the store
          --books  of server: the cost of installs' books
          --rounds measurements of each kind, interleaved; medians are printed (default 3)

        Prints Markdown tables. Build it and hapax-server with -c release, or the figures mean nothing.
        """

    static func main() async throws {
        var part = "all"
        var events = 100_000
        var rounds = 3
        var server = ServerBenchmark(events: 0, rounds: 0)
        var history = History(days: 20, eventsPerDay: 1_000_000)
        var arguments = Array(CommandLine.arguments.dropFirst())
        while !arguments.isEmpty {
            let argument = arguments.removeFirst()
            switch argument {
            case "server", "client", "edge", "attacks", "links", "reads", "flat", "erase", "books", "sizes", "senders", "all":
                part = argument
            case "--pinned": server.isPinned = true
            case "--peer": server.hasPeer = true
            case "--tls": server.isSecured = true
            case "--keys": server.hasStoreKeys = true
            case "--books": server.hasBooks = true
            case "hold" where arguments.count == 1: return try await Footprint.hold(arguments[0])
            case "--events", "--rounds", "--days", "--per-day":
                guard let value = arguments.first.flatMap({ Int($0) }), value > 0, value <= 10_000_000 else { fail() }
                arguments.removeFirst()
                switch argument {
                case "--events": events = value
                case "--rounds": rounds = value
                case "--days": history.days = value
                default: history.eventsPerDay = value
                }
            default: fail()
            }
        }
        printMachine()
        if part == "reads" { return try await ReadsBenchmark(history: history, events: events, rounds: rounds).run() }
        if part == "flat" { return try await FlatBenchmark(history: history, events: events, rounds: rounds).run() }
        if part == "erase" { return try await EraseBenchmark(history: history).run() }
        if part == "books" { return try await BooksBenchmark().run() }
        if part == "sizes" { return try await SizesBenchmark(events: events).run() }
        if part == "senders" { return try await SendersBenchmark(events: events, rounds: rounds).run() }
        if part == "links" { return try await LinksBenchmark().run() }
        if part == "attacks" { return try await EdgeBenchmark(events: events, rounds: rounds).runAttacks() }
        if part == "edge" || part == "all" { try await EdgeBenchmark(events: events, rounds: rounds).run() }
        if part == "edge" { return }
        if part != "client" {
            (server.events, server.rounds) = (events, rounds)
            try await server.run()
        }
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
