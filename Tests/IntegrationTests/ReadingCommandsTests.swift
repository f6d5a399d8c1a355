import Foundation
import HapaxModel
import TestSupport
import Testing

/// docs/reading.md: in a terminal: the real command against the real server.
@Suite("hapax tail, events, report and export (R63)", .serialized, .endsWhenItHangs)
struct ReadingCommandsTests {
    private static let readKey = "read-key-of-demo"

    private struct Ran {
        var status: ChildProcess.Exit
        var lines: [String]
        var errors: String
    }

    /// - Parameter port: Where the server is asked, if something stands between.
    private static func start(
        _ server: ServerUnderTest, _ arguments: [String], key: String = readKey, port: Int? = nil
    ) throws -> ChildProcess {
        try ChildProcess(
            "hapax", arguments,
            environment: ["HAPAX_SERVER": "http://127.0.0.1:\(port ?? server.port)", "HAPAX_READ_KEY": key, "TZ": "UTC"])
    }

    private static func run(
        _ server: ServerUnderTest, _ arguments: [String], key: String = readKey, port: Int? = nil
    ) async throws -> Ran {
        let process = try start(server, arguments, key: key, port: port)
        let lines = await process.remainingLines()
        return Ran(status: await process.waitUntilExit(), lines: lines, errors: await process.remainingErrors())
    }

    private static func send(_ server: ServerUnderTest, _ events: String...) async throws {
        let answer = try await RawHTTP.post(
            port: server.port, headers: ["Authorization": "Bearer \(ServerUnderTest.key)", "Content-Type": "application/json"],
            body: Array("[\(events.joined(separator: ","))]".utf8))
        #expect(answer.status == 200)
    }

    private static func event(_ number: Int, _ name: String, user: String = "u", properties: String = "{}") -> String {
        #"{"event_id":"01980000-0000-7000-8000-\#(String(100_000_000_000 + number))","event":"\#(name)","time":0,"distinct_id":"\#(user)","properties":\#(properties)}"#
    }

    /// Under a new id each time.
    private static func hostile(_ number: Int = 2) -> String {
        event(number, #"\u001b[2J\u202e\u009b31m"#, user: #"\n\u0007"#, properties: "{\"a\u{9B}\":\"\u{202E}\\u001b\"}")
    }

    @Test("What operations.md says for the client's command in the server's container works as it stands (A16)")
    func commandInTheContainerWorks() async throws {
        let server = try await ServerUnderTest.start(try await PipelineStore(.sqlite), readKey: Self.readKey)
        let text = try String(contentsOf: PackageLayout.root.appending(path: "docs/operations.md"), encoding: .utf8)
        let settings = try #require(text.firstMatch(of: /docker compose exec (-e .*) server hapax tail/)?.1)
        var environment: [String: String] = [:]
        for setting in settings.split(separator: "-e ") {
            let parts = setting.filter { $0 != " " }.split(separator: "=", maxSplits: 1)
            environment[String(parts[0])] = String(
                parts[1].replacing("…", with: Self.readKey).replacing("8080", with: "\(server.port)"))
        }
        let tail = try ChildProcess("hapax", ["tail", "--count", "1"], environment: environment)
        // A stream has no past: events are sent until it has shown one.
        let isOver = Locked(false)
        async let sending: Void = {
            var number = 0
            while !isOver.withLock({ $0 }) {
                number += 1
                try await Self.send(server, Self.event(number, "paid"))
            }
        }()
        let lines = await tail.remainingLines()
        isOver.withLock { $0 = true }
        #expect(await tail.waitUntilExit() == .exited(0) && lines.count == 1)
        try await sending
        await server.stop()
    }

    @Test("tail shows events and refusals as they arrive, ends by itself, and sends no escape sequence of an event to the terminal")
    func tailShowsWhatArrives() async throws {
        let store = try await PipelineStore(.sqlite)
        let server = try await ServerUnderTest.start(store, readKey: Self.readKey)
        let text = try Self.start(server, ["tail"])
        let json = try Self.start(server, ["tail", "--json", "--count", "1", "--timeout", "300", "--event", "\u{1B}[2J\u{202E}\u{9B}31m"])
        // A stream has no past: events are sent until both have shown one.
        async let firstLine = text.nextLine()
        async let objects = json.remainingLines()
        let isSeen = Locked(false)
        async let sending: Void = {
            var number = 1_000
            while !isSeen.withLock({ $0 }) {
                number += 1
                try await Self.send(server, Self.hostile(number))
            }
        }()
        let (line, object) = (await firstLine ?? "", await objects.joined())
        isSeen.withLock { $0 = true }
        try await sending
        #expect(await json.waitUntilExit() == .exited(0))
        #expect(line.contains(#"stored     \u{1B}[2J\u{202E}\u{9B}31m  \u{A}\u{7}  {"a\u{9B}""#), "\(line)")
        #expect(object.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x9B && $0.value != 0x202E }, "\(object)")
        let event = try #require(try JSONSerialization.jsonObject(with: Data(object.utf8)) as? [String: Any])["event"] as? [String: Any]
        #expect(event?["properties"] as? [String: String] == ["a\u{9B}": "\u{202E}\u{1B}"])
        try await Self.send(server, Self.event(3, ""))
        while let line = await text.nextLine() {
            if line.contains("rejected   invalid_event: event is empty") { break }
            #expect(line.contains("stored"), "\(line)")
        }
        text.terminate()
        #expect(await text.waitUntilExit() == .signaled(SIGTERM))
        await server.stop()
        withExtendedLifetime(store) {}
    }

    @Test("events lists and finds; exit codes and complaints say what is wrong", arguments: PipelineStore.Kind.allCases)
    func eventsListsAndFinds(kind: PipelineStore.Kind) async throws {
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store, readKey: Self.readKey)
        try await Self.send(server, Self.event(1, "order_paid", user: "c+1 & Ü", properties: #"{"plan":"pro"}"#))
        try await Self.send(server, Self.hostile())
        try await Self.send(server, Self.event(3, ""))
        let all = try await Self.run(server, ["events"])
        try #require(all.status == .exited(0) && all.lines.count == 2, "\(all)")
        #expect(
            all.lines[0].contains(#"\u{1B}[2J\u{202E}\u{9B}31m"#)
                && all.lines[1].hasSuffix(#"stored     order_paid  c+1 & Ü  {"plan":"pro"}  of 1970-01-01 00:00:00.000"#))
        let found = try await Self.run(server, ["events", "--user", "c+1 & Ü", "--where", "plan:pro", "--event", "order_paid", "--json"])
        #expect(found.lines.count == 1 && found.lines[0].contains(#""event_id":"01980000-0000-7000-8000-100000000001""#))
        // All happened on the first day of 1970, and was received now (S22).
        let happened = ["events", "--happened-from", "1970-01-01", "--happened-to"]
        #expect(try await Self.run(server, happened + ["1970-01-02"]).lines == all.lines)
        #expect(try await Self.run(server, happened + ["1970-01-01T00:00:00Z"]).lines == [])
        let page = try await Self.run(server, ["events", "--limit", "1"])
        let next = try #require(page.errors.split(separator: " ").last)
        #expect(page.lines.count == 1 && page.errors.contains("there may be more: --after"))
        #expect(
            try await Self.run(server, ["events", "--after", next.trimmingCharacters(in: .whitespacesAndNewlines)]).lines == [all.lines[1]])
        let id = "01980000-0000-7000-8000-10000000000"
        #expect(try await Self.run(server, ["events", id + "1"]).status == .exited(0))
        let refused = try await Self.run(server, ["events", id + "3"])
        #expect(refused.status == .exited(1) && refused.lines[0].contains("rejected   invalid_event: event is empty"))
        for (arguments, key, says) in [
            (["events", id + "9"], Self.readKey, "not_found"), (["events"], "nobody", "unknown_key"),
            (["tail"], ServerUnderTest.key, "wrong_key_kind"),
            (["events", "--from", "x"], Self.readKey, "invalid_parameter (from)"), (["tail", "--outcome", "x"], Self.readKey, "(outcome)"),
            (["tail", "--timeout", "1", "--count", "1"], Self.readKey, "0 of 1 came in time"),
        ] {
            let ran = try await Self.run(server, arguments, key: key)
            #expect(ran.status == .exited(1) && ran.errors.contains(says), "\(arguments): \(ran)")
        }
        // As deep as an event may be, and a number that PostgreSQL writes in 309 digits.
        let deep = String(repeating: "[", count: 30) + "1.7976931348623157e308" + String(repeating: "]", count: 30)
        try await Self.send(server, Self.event(4, "deep", properties: #"{"v":\#(deep)}"#))
        for arguments in [
            ["events", "--event", "deep"], ["events", "--event", "deep", "--json"], ["events", "01980000-0000-7000-8000-100000000004"],
        ] {
            let found = try await Self.run(server, arguments)
            #expect(found.status == .exited(0) && found.lines.count == 1 && found.lines[0].contains("[[1"), "\(found)")
        }
        await server.stop()
        #expect(try await Self.run(server, ["events"]).errors.contains("the server cannot be read"))
        withExtendedLifetime(store) {}
    }

    @Test(
        "report daily: a table with the commonest events, JSON and CSV of the same days, app figures only where there are any (S27)",
        arguments: PipelineStore.Kind.allCases
    )
    func reportIsShown(kind: PipelineStore.Kind) async throws {
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store, readKey: Self.readKey)
        // All of 1970, received now: late by definition.
        try await Self.send(server, Self.event(1, "order_paid"), Self.event(2, "order_paid"), Self.event(3, "$AppStart", user: "v"))
        let one = ["report", "daily", "--from", "1970-01-01", "--to", "1970-01-02"]
        var table = try await Self.run(server, one + ["--basis", "all"])
        // The server closes the day within seconds of its first event.
        while table.lines.count > 1, table.lines[1].contains(" closing ") { table = try await Self.run(server, one + ["--basis", "all"]) }
        try #require(table.status == .exited(0) && table.lines.count == 7, "\(table)")
        #expect(
            table.lines[0].split(separator: " ").joined(separator: " ")
                == "day state users events active new sessions mean session mean use late")
        #expect(table.lines[1].hasPrefix("1970-01-01  closed      2       3       1    1         0             -         -"))
        #expect(
            table.lines[2...] == ["time zone: UTC", "", "commonest events  count", "order_paid            2", "$AppStart             1"],
            "\(table)")
        let today = try await Self.run(server, ["report", "daily"])
        #expect(today.lines.count == 9 && today.lines[0].split(separator: " ") == ["day", "state", "users", "events", "late"])
        #expect(today.lines[7].contains("open"))
        let csv = try await Self.run(server, one + ["--basis", "all", "--csv"])
        #expect(
            csv.lines.count == 2 && csv.lines[1].contains("1970-01-01T00:00:00Z,1970-01-02T00:00:00Z,1970-01-02T04:00:00Z,2,1,1,0,0,,,3,"))
        let names = try await Self.run(server, one + ["--basis", "all", "--csv", "--by", "event"])
        #expect(names.lines == ["day,state,event,count\r", "1970-01-01,closed,order_paid,2\r", "1970-01-01,closed,$AppStart,1\r"])
        let json = try await Self.run(server, one + ["--json"])
        #expect(json.lines.count == 1 && json.lines[0].contains(#""events":{"total":0,"by_name":[],"other":0}"#))
        for (arguments, status, says) in [
            (["report", "daily", "--from", "1"], 1, "invalid_parameter (from)"), (one + ["--basis", "x"], 1, "(basis)"),
            (one + ["--csv", "--json"], 64, "Either --csv or --json"), (one + ["--by", "event"], 64, "--by goes with --csv"),
        ] as [([String], Int32, String)] {
            let ran = try await Self.run(server, arguments)
            #expect(ran.status == .exited(status) && ran.errors.contains(says), "\(arguments): \(ran)")
        }
        await server.stop()
        withExtendedLifetime(store) {}
    }

    @Test(
        "report series, breakdown, funnel and retention: tables, the same as JSON and CSV, and exit codes",
        arguments: PipelineStore.Kind.allCases)
    func analysisIsShown(kind: PipelineStore.Kind) async throws {
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store, readKey: Self.readKey)
        let pro = #"{"plan":"pro","n":1.0}"#
        try await Self.send(
            server, Self.event(1, "view", properties: pro), Self.event(2, "paid", properties: pro), Self.event(3, "view", user: "v"),
            Self.event(4, "\\u001b[2J"))
        let span = ["--from", "1970-01-01", "--to", "1970-01-02", "--basis", "all"]
        func ask(_ arguments: String...) async throws -> Ran { try await Self.run(server, ["report"] + arguments + span) }
        func words(_ line: String) -> [Substring] { line.split(separator: " ") }
        // What was received in the last two seconds is not settled yet.
        while try await ask("series").lines.last(where: { $0.hasPrefix("total") }).map(words) != ["total", "4", "2"] {}
        let series = try await ask("series", "--event", "view", "--where", "n:1", "--compare", "--over", "7")
        #expect(series.lines.count == 4 && words(series.lines[1]) == ["1970-01-01", "closed", "1", "1", "1", "-", "-"], "\(series)")
        let hours = try await ask("series", "--unit", "hour")
        #expect(hours.lines.count == 27 && hours.lines[1].hasPrefix("1970-01-01 00:00  closed       4      2"), "\(hours)")
        let values = try await ask("breakdown", "plan", "--sort", "users")
        #expect(
            values.lines.dropLast().map(words) == [
                ["plan", "events", "users"], [#""pro""#, "2", "1"], ["(without", "it)", "2", "2"], ["total", "4", "2"],
            ], "\(values)")
        let funnel = try await ask("funnel", "view plan:pro", "paid", "--within", "1h")
        #expect(funnel.lines[2].contains("100.0 %") && words(funnel.lines[2]).starts(with: ["paid", "1"]), "\(funnel)")
        let back = try await ask("retention", "--start", "view")
        #expect(back.lines[1].hasPrefix("1970-01-01      2  100.0 %") && back.lines[0].hasPrefix("new on      users"), "\(back)")
        #expect(try await ask("breakdown", "plan", "--csv").lines[1] == "string,pro,2,1\r")
        #expect(try await ask("breakdown", "n", "--json").lines.first?.contains(#""rows":[{"value":1,"#) == true)
        #expect(!(series.lines + values.lines).joined().contains("\u{1B}"))
        for (arguments, status) in [
            (["series", "--final"], 2), (["series", "--csv", "--final"], 2), (["funnel", "view"], 1), (["series", "--unit", "year"], 1),
            (["series", "--csv", "--json"], 64), (["breakdown"], 64),
        ] as [([String], Int32)] {
            let ran = try await Self.run(server, ["report"] + arguments + span)
            #expect(ran.status == .exited(status), "\(arguments) \(ran)")
        }
        let closed = try await Self.run(server, ["report", "series", "--from", "1970-01-01", "--to", "1970-01-02", "--final"])
        #expect(closed.status == .exited(0) && closed.lines.last?.contains("final") == true, "\(closed)")
        await server.stop()
        withExtendedLifetime(store) {}
    }

    @Test(
        "export writes each event once, in spite of answers that are cut; goes on behind a file's last whole line; import takes all back as duplicates",
        arguments: PipelineStore.Kind.allCases)
    func exportIsWholeAndCanBeImported(kind: PipelineStore.Kind) async throws {
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store, readKey: Self.readKey)
        let proxy = try FaultProxy(to: server.port)
        let directory = TemporaryDirectory("export")
        let file = directory.path("events.ndjson")
        func content() throws -> [Substring] { try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n") }
        try await Self.send(server, Self.hostile())
        for number in 10..<40 { try await Self.send(server, Self.event(number, "order_paid", properties: #"{"n":\#(number), "e":1e300}"#)) }
        // What was received in the last two seconds is not exported yet.
        while try await Self.run(server, ["export"]).lines.count < 31 {}
        proxy.follow(.script([.cutAnswer(after: 50), .cutAnswer(after: 900), .cutAnswer(after: 3_001), .resetAfterAnswer]))
        let first = try await Self.run(server, ["export", "-o", file], port: proxy.port)
        #expect(
            first.status == .exited(0) && first.errors.contains("31 events written") && first.errors.contains("trying again"), "\(first)")
        let whole = try content()
        #expect(whole.count == 31)
        #expect(try await Self.run(server, ["export"]).lines.map { $0[...] } == whole)
        // An export that was interrupted in the middle of a line.
        try (whole.prefix(7).joined(separator: "\n") + "\n" + whole[7].prefix(30)).write(toFile: file, atomically: true, encoding: .utf8)
        #expect(try await Self.run(server, ["export", "--output", file]).errors.contains("24 events written"))
        #expect(try content() == whole)
        #expect(try await Self.run(server, ["export", "-o", file]).errors.contains("0 events written"))
        let third = "01980000-0000-7000-8000-\(100_000_000_000 + 11)"
        let rest = try await Self.run(server, ["export", "--after", third, "--event", "order_paid", "--user", "u"])
        #expect(rest.lines.count == 28 && rest.lines[0].contains(#""n":12"#))
        // S22: received now, and of the first day of 1970.
        #expect(try await Self.run(server, ["export", "--happened-to", "1970-01-02"]).lines.count == 31)
        let received = try await Self.run(server, ["export", "--to", "1970-01-02"])
        #expect(received.lines.isEmpty && received.errors.contains("see --happened-from"))
        let hapax = try ChildProcess(
            "hapax", ["import", file],
            environment: [
                "HAPAX_SERVER": "http://127.0.0.1:\(server.port)", "HAPAX_KEY": ServerUnderTest.key, "HAPAX_QUEUE": directory.path("queue"),
            ])
        #expect(await hapax.remainingLines() == ["0 stored, 31 duplicates, 0 dead letters, 0 lines rejected"])
        try "no export\n".write(toFile: file, atomically: true, encoding: .utf8)
        for (arguments, status, says) in [
            (["-o", file], 1, "no line of an export; nothing was done"), (["-o", directory.path], 1, "cannot be opened"),
            (["--after", "01980000-0000-7000-8000-999999999999"], 1, "(after)"), (["--after", third, "-o", file], 64, "--output goes on"),
            (["-o", "/dev/full"], 74, "the file cannot be written"),
        ] as [([String], Int32, String)] {
            let ran = try await Self.run(server, ["export"] + arguments)
            #expect(ran.status == .exited(status) && ran.errors.contains(says), "\(arguments): \(ran)")
        }
        #expect(try content() == ["no export"])
        // Somebody's own file, with an end of line and without.
        for text in [#"{"important":"data"}"#, whole[0].replacing(/,"received_at":"[^"]*"/, with: "") + "\n"] {
            try text.write(toFile: file, atomically: true, encoding: .utf8)
            #expect(try await Self.run(server, ["export", "-o", file]).status == .exited(1))
            #expect(try String(contentsOfFile: file, encoding: .utf8) == text)
        }
        await server.stop()
        withExtendedLifetime(store) {}
    }

    @Test(
        "export --csv writes each event once as a row, in spite of answers that are cut; goes on in a file of the same columns, and only there"
    )
    func exportedTableIsWhole() async throws {
        let store = try await PipelineStore(.sqlite)
        let server = try await ServerUnderTest.start(store, readKey: Self.readKey)
        let proxy = try FaultProxy(to: server.port)
        let directory = TemporaryDirectory("table")
        let file = directory.path("events.csv")
        func rows() throws -> [String] { try String(contentsOfFile: file, encoding: .utf8).components(separatedBy: "\r\n") }
        let table = ["export", "--csv", "--columns", "plan,cart.total", "--output", file]
        #expect(try await Self.run(server, table).status == .exited(0))
        #expect(try rows() == ["event_id,event,time,distinct_id,received_at,plan,cart.total", ""])
        for number in 10..<40 {
            let properties = #"{"plan":"=a, \"b\"\n\#(number)","cart":{"total":-\#(number).50}}"#
            try await Self.send(server, Self.event(number, "order_paid", user: "u,\(number)", properties: properties))
        }
        while try await Self.run(server, ["export"]).lines.count < 30 {}
        proxy.follow(.script([.cutAnswer(after: 50), .cutAnswer(after: 900), .cutAnswer(after: 3_001)]))
        let first = try await Self.run(server, table, port: proxy.port)
        #expect(first.status == .exited(0) && first.errors.contains("30 events written"), "\(first)")
        let whole = try rows()
        #expect(whole.count == 32 && Set(whole).count == 32)
        let id = "01980000-0000-7000-8000-\(100_000_000_000 + 10)"
        #expect(whole[1].hasPrefix(#"\#(id),order_paid,1970-01-01T00:00:00.000000Z,"u,10","#))
        #expect(whole[1].hasSuffix(#"Z,"'=a, ""b""\u{A}10",-10.50"#), "\(whole[1])")
        // An export that was interrupted in the middle of a row.
        try (whole.prefix(7).joined(separator: "\r\n") + "\r\n" + whole[7].prefix(30)).write(
            toFile: file, atomically: true, encoding: .utf8)
        #expect(try await Self.run(server, table).errors.contains("24 events written"))
        #expect(try rows() == whole)
        let others = try await Self.run(server, ["export", "--csv", "-o", file])
        #expect(others.status == .exited(1) && others.errors.contains("none of an export with these columns"), "\(others)")
        #expect(try await Self.run(server, ["export", "-o", file]).status == .exited(1))
        #expect(try rows() == whole)
        let json = try await Self.run(server, ["export", "--csv", "--after", id])
        #expect(json.lines.count == 29, "\(json)")
        #expect(json.lines[0].contains(#""{""plan"":""=a, \""b\""\n11"",""cart"":{""total"":-11.50}}""#), "\(json.lines[0])")
        await server.stop()
        withExtendedLifetime(store) {}
    }
}
