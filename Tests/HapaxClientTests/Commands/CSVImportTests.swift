import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient
@testable import hapax

/// docs/client-script.md, Bringing history.
@Suite("hapax import --csv", .endsWhenItHangs)
struct CSVImportTests {
    private let server: IngestStandIn
    private let hapax: CommandLine
    private var path: String { hapax.directory.path + "/orders.csv" }

    private static let columns = ["--csv", "--name", "order_paid", "--time", "at", "--user", "customer"]

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func run(_ text: String, _ options: [String] = columns) async throws -> CommandLine.Output {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        return try await hapax.start(["import", path] + options).finish()
    }

    private var sent: [ScannedEvent] { server.batches.flatMap(\.scanned.events) }
    private var sentProperties: [String] { sent.map { String(decoding: $0.properties, as: UTF8.self) } }

    @Test(
        "a record becomes an event: numbers, truth values and text, cells in quotation marks over several lines; bad ones are named (C22)")
    func recordsBecomeEvents() async throws {
        let text = """
            \u{FEFF}order;at;customer;amount;plan;gift;note;zip
            A-1;2026-11-25T09:00:00Z;c1;12.50;pro;TRUE;"two
            ""lines""; here";01234
            A-2;2026-11-25T09:00:00Z;c1;;pro;false;;12345
            A-3;2026-11-25T09:00:00Z
            A-4;2026-11-25T09:00:00Z;;1;;;;

            A-5;yesterday;c1;1;;;;
            A-6;2026-11-25T09:00:00Z;c1;12345678901234567;-0.5;1e5;5" pipe;
            """.replacing("\n", with: "\r\n")
        let output = try await run(text, Self.columns + ["--text", "zip", "--id-from", "order"])
        #expect(output.status == 3 && output.out.hasPrefix("3 stored, 0 duplicates, 0 dead letters, 3 lines rejected"), "\(output)")
        for reason in [
            "line 5: invalid_csv: 2 cells, but the first line has 8", "line 6: invalid_distinct_id",
            "line 8: invalid_time: must be as 2026-11-25",
        ] { #expect(output.error.contains(reason), "\(output.error)") }
        #expect(
            sentProperties == [
                #"{"amount":12.50,"gift":true,"note":"two\r\n\"lines\"; here","order":"A-1","plan":"pro","zip":"01234"}"#,
                #"{"gift":false,"order":"A-2","plan":"pro","zip":"12345"}"#,
                #"{"amount":"12345678901234567","gift":"1e5","note":"5\" pipe","order":"A-6","plan":-0.5}"#,
            ])
        // The id that the service gives the same order.
        let day = CalendarDay("2026-11-25")
        #expect(try server.stored.keys.contains(.derived(name: "order_paid", key: "A-1", day: #require(day))))
        #expect(try await run(text, Self.columns + ["--id-from", "order"]).out.hasPrefix("0 stored, 3 duplicates"))
        #expect(try String(contentsOfFile: path + ".rejected", encoding: .utf8).contains(#"{"detail":"2 cells"#))
    }

    @Test("times: with and without zone, seconds and T; of an hour that clocks show twice the first; none where clocks go forward")
    func timesAreRead() async throws {
        let times: KeyValuePairs<String, String?> = [
            "2026-11-25T09:00:00.5+01:00": "2026-11-25T08:00:00.500", "2026-11-25 09:00:00.123456-0230": "2026-11-25T11:30:00.123",
            "2026-11-25 09:00:00+01": "2026-11-25T08:00:00.000", "2026-11-25 09:00": "2026-11-25T08:00:00.000",
            "2026-11-25": "2026-11-24T23:00:00.000", "2026-11-25 09:00:00 UTC": "2026-11-25T09:00:00.000",
            "1795597200123": "2026-11-25T09:00:00.123", "2026-07-01T00:00": "2026-06-30T22:00:00.000",
            "2026-10-25T02:30": "2026-10-25T00:30:00.000", "2026-03-29T02:30": nil, "2026-03-29T03:00": "2026-03-29T01:00:00.000",
            "1795597200": nil, "20261125090000": nil, "2026-11-25-05": nil, "2026-02-30": nil, "25.11.2026": nil, "": nil,
            "2026-11-25T9:00": nil, "1969-12-31": nil,
        ]
        let text = "at,customer\n" + times.enumerated().map { "\($1.key),c\($0)\n" }.joined()
        let output = try await run(text, Self.columns + ["--zone", "Europe/Berlin"])
        let expected = times.compactMap(\.value).map { Timestamp($0 + "Z")?.unixMilliseconds }
        #expect(sent.map(\.time) == expected && output.status == 3, "\(output)")
        #expect(output.error.contains("clocks were put forward"))
        // Without a zone nobody knows when it was: nothing is stored, and it can be run again.
        let without = try await run("at,customer\n2026-11-25 09:00,c0\n")
        #expect(without.status == 1 && without.error.contains("line 2: the time has no zone"), "\(without)")
    }

    @Test("the whole row is the id without --id-from, whatever the columns' order; --id takes ids that are there; names come from a column")
    func idsAreFound() async throws {
        let rows = "name,at,customer\na,2026-11-25T09:00:00Z,u\n,2026-11-25T09:00:00Z,u\n"
        let options = Self.columns + ["--event", "name"]
        #expect(try await run(rows + "a,2026-11-25T09:00:00Z,u\n", options).out.hasPrefix("2 stored, 1 duplicates"))
        #expect(Set(sent.map { String(decoding: $0.name, as: UTF8.self) }) == ["a", "order_paid"])
        #expect(try await run("customer,name,at\nu,a,2026-11-25T09:00:00Z\n", options).out.hasPrefix("0 stored, 1 duplicates"))
        let id = "01980000-0000-7000-8000-000000000001"
        #expect(
            try await run("id,at,customer\n\(id),2026-11-25T09:00:00Z,u\nx,2026-11-25,u\n", Self.columns + ["--id", "id", "--zone", "UTC"])
                .status == 3)
        #expect(server.stored.keys.contains { $0.description == id })
        #expect(sentProperties.last == "{}")
    }

    @Test(
        "a key that is empty makes no event; without a day ids are those of track --derive-id; numbers of rows and new empty columns make none"
    )
    func idsAreOfWhatIsThere() async throws {
        let rows = "order,at,customer\n,2026-11-25T09:00:00Z,u\n,2026-11-25T09:00:00Z,v\nA-1,2026-11-25T09:00:00Z,u\n"
        let empty = try await run(rows, Self.columns + ["--id-from", "order", "--undated"])
        #expect(empty.status == 3 && empty.out.hasPrefix("1 stored, 0 duplicates, 0 dead letters, 2 lines rejected"), "\(empty)")
        #expect(empty.error.contains("line 2: invalid_csv: order is empty"))
        #expect(server.stored.keys.contains(.derived(name: "order_paid", key: "A-1")))
        #expect(try await run(",at,customer\n0,2026-11-25T09:00:00Z,w\n").out.hasPrefix("1 stored"))
        #expect(try await run(",at,customer,new\n1,2026-11-25T09:00:00Z,w,\n").out.hasPrefix("0 stored, 1 duplicates"))
        // A day that begins at one o'clock.
        let gap = try await run("at,customer\n2018-11-04,x\n", Self.columns + ["--zone", "America/Sao_Paulo"])
        #expect(gap.status == 0 && sent.last?.time == Timestamp("2018-11-04T03:00:00Z")?.unixMilliseconds, "\(gap)")
    }

    @Test("a quotation mark that never ends costs its own line, in a file of any size, and no time; nor do many columns")
    func strayQuotationMarksCostTheirLine() async throws {
        let row = "2026-11-25T09:00:00Z,u"
        for (count, filling) in [(20, ""), (3, String(repeating: "x\n", count: 600_000))] {
            let text = "at,customer\n" + (0..<count).map { "\(row)\($0)\n" }.joined() + "2026-11-25T09:00:00Z,\"u\n"
            let behind = (0..<count).map { "\(row)behind\($0)\n" }.joined()
            let output = try await run(text + behind + filling)
            #expect(
                output.status == 3 && output.error.contains("line \(count + 2): invalid_csv: a cell in quotation marks begins"), "\(output)"
            )
        }
        #expect(server.stored.count == 40)
        let many = try await run("at,customer," + (0..<20_000).map { "c\($0)" }.joined(separator: ",") + "\n")
        #expect(many.status == 0)
    }

    @Test("what the command cannot use ends it before anything is stored; the last row may be unfinished")
    func mistakesAreTold() async throws {
        let row = "at,customer\n2026-11-25T09:00:00Z,u\n"
        for (text, options, status, says) in [
            (row, Self.columns + ["--event", "nmae"], 1, "no column 'nmae'; the columns are at, customer"),
            ("at,customer,at\n", Self.columns, 1, "'at' is there twice"), ("", Self.columns, 1, "no first line"),
            (row, ["--csv", "--time", "at"], 64, "Which columns?"), (row, ["--time", "at"], 64, "give --csv"),
            (row, Self.columns + ["--zone", "Mars"], 64, "no time zone 'Mars'"),
            (row.replacing("\n", with: "\r"), Self.columns, 1, "lines must end with LF"),
            ("event_id," + row, Self.columns, 1, "give --id event_id"), (row, Self.columns + ["--id-from", ","], 64, "is empty"),
            (row + "2026-11-25T09:00:00Z", Self.columns, 2, "line 3, the last one, is unfinished"),
            (row + "2026-11-25T09:00:00Z,last", Self.columns, 0, "went on after line 2"),
        ] as [(String, [String], Int32, String)] {
            let output = try await run(text, options)
            #expect(output.status == status && output.error.contains(says), "\(options): \(output)")
        }
        #expect(server.stored.count == 2)
    }

    @Test("an interrupted import goes on with the same columns, and begins anew if a name has changed (I1)")
    func interruptedImportGoesOn() async throws {
        let text = "at,customer,n\n" + (0..<5_000).map { "2026-11-25T09:00:00Z,u,\"\($0)\n\"\n" }.joined()
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        func interrupt() async throws {
            let (batches, requests) = (server.batches.count, server.change { $0.requests })
            server.change { $0.silentAfter = batches + 2 }
            let (process, finish) = try hapax.start(["import", path] + Self.columns)
            await server.requests(requests + 3)
            process.kill(SIGINT)
            #expect(await finish().status == 130)
            server.change { $0.silentAfter = nil }
        }
        try await interrupt()
        let resumed = try await hapax.start(["import", path, "--json"] + Self.columns).finish()
        #expect(resumed.status == 0 && resumed.json["resumed_after_line"] as? Int ?? 0 > 1_000, "\(resumed)")
        #expect(server.stored.count == 5_000)
        // An id without --id-from is of the names, too.
        try Data(text.replacing("u,", with: "v,").utf8).write(to: URL(fileURLWithPath: path))
        try await interrupt()
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
        try file.write(contentsOf: Data("at,customer,m".utf8))
        try file.close()
        let anew = try await hapax.start(["import", path, "--json"] + Self.columns).finish()
        #expect(anew.status == 0 && anew.json["resumed_after_line"] as? Int == 0 && anew.json["started_over"] is String, "\(anew)")
    }
}
