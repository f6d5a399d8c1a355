import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient
@testable import hapax

/// Tables as other programs write them (docs/client-script.md, Bringing history).
@Suite("hapax import --csv, tables of other programs (A17, C29)", .endsWhenItHangs)
struct CSVFormatsTests {
    private let server: IngestStandIn
    private let hapax: CommandLine
    private static let columns = ["--csv", "--name", "order_paid", "--time", "at", "--user", "customer"]

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func run(_ text: [UInt8], _ options: [String]) async throws -> CommandLine.Output {
        let path = hapax.directory.path + "/table.csv"
        try Data(text).write(to: URL(fileURLWithPath: path))
        return try await hapax.start(["import", path] + Self.columns + options).finish()
    }

    private var sent: [ScannedEvent] { server.batches.flatMap(\.scanned.events) }

    @Test("separators, Windows-1252, decimal commas and German dates are read as they are meant")
    func formatsAreRead() async throws {
        let at = "2026-11-25T09:00:00Z"
        for (text, options, expected) in [
            ("at|customer|plan\n\(at)|u|pro\n", [], #"{"plan":"pro"}"#),
            ("sep=;\r\nat;customer;plan,s\r\n\(at);u;pro\r\n", [], #"{"plan,s":"pro"}"#),
            ("\u{FEFF}SEP=^\nat^customer^plan,a,b\n\(at)^u^\"x^y\"\n", [], #"{"plan,a,b":"x^y"}"#),
            ("at;customer;a,b,c,d\n\(at);u;pro\n", ["--separator", ";"], #"{"a,b,c,d":"pro"}"#),
            ("at\tcustomer\tplan\n\(at)\tu\tpro\n", ["--separator", "tab"], #"{"plan":"pro"}"#),
            (
                "at;customer;a;b;c;d;e\n\(at);u;1.234,50;-12,5;7;1.5;012,5\n", ["--decimal-comma"],
                #"{"a":1234.50,"b":-12.5,"c":7,"d":"1.5","e":"012,5"}"#
            ),
            ("at;customer;a\n25.11.2026 10:00;u;1\n", ["--date-format", "dd.MM.yyyy HH:mm", "--zone", "Europe/Berlin"], #"{"a":1}"#),
            ("at;customer;a\n11/25/26 9:00:00 am;u;1\n", ["--date-format", "M/d/yy h:mm:ss a", "--zone", "UTC"], #"{"a":1}"#),
        ] as [(String, [String], String)] {
            server.change { ($0.stored, $0.batches) = ([:], []) }
            let output = try await run(Array(text.utf8), options)
            #expect(
                output.status == 0 && sent.map { String(decoding: $0.properties, as: UTF8.self) } == [expected], "\(options): \(output)")
            #expect(sent.map(\.time) == [1_795_597_200_000], "\(options)")
        }
    }

    @Test("Windows-1252 is read where it is named; where it is not, the row is rejected and its option is named")
    func encodingIsNamed() async throws {
        let text = Array("at,customer,käse,preis €\n".utf16) + Array("2026-11-25T09:00:00Z,Jürgen,„Brie“,5\n".utf16)
        let signs: [UInt16: UInt8] = [0x20AC: 0x80, 0x201E: 0x84, 0x201C: 0x93]
        let bytes = text.map { signs[$0] ?? UInt8($0) }
        let refused = try await run(bytes, [])
        #expect(refused.status == 1 && refused.error.contains("--encoding windows-1252") && server.stored.isEmpty)
        let rows = Array(bytes.drop { $0 != 0x0A })
        let rejected = try await run(Array("at,customer,a,b".utf8) + rows, [])
        #expect(rejected.status == 3 && rejected.error.contains("line 2: invalid_utf8") && rejected.error.contains("see --encoding"))
        #expect(try await run(bytes, ["--encoding", "windows-1252"]).status == 0)
        #expect(sent.map { String(decoding: $0.properties, as: UTF8.self) } == [#"{"käse":"„Brie“","preis €":5}"#])
        #expect(sent.map { String(decoding: $0.distinctID, as: UTF8.self) } == ["Jürgen"])
    }

    @Test("a date in another form than --date-format says, or that no calendar has, is rejected with its line")
    func datesAreChecked() async throws {
        let dates = ["25.11.2026", "31.02.2026", "2026-11-25", "25.11.2026 9:00", "25.11.26", "x", "5.1.2026", "00.01.2026", "01.13.2026"]
        let text = "at,customer\n" + dates.map { "\($0),u\n" }.joined()
        let output = try await run(Array(text.utf8), ["--date-format", "d.M.yyyy", "--zone", "UTC"])
        #expect(output.status == 3 && output.out.hasPrefix("2 stored, 0 duplicates, 0 dead letters, 7 lines rejected"), "\(output)")
        #expect(output.error.contains("line 3: invalid_time: is as --date-format says (d.M.yyyy), but no day and time"), "\(output)")
        #expect(output.error.contains("line 4: invalid_time: must be as --date-format says: d.M.yyyy"))
        #expect(sent.map(\.time) == ["2026-11-25T00:00:00Z", "2026-01-05T00:00:00Z"].map { Timestamp($0)?.unixMilliseconds })
        for format in ["", "dd.MM", "dd.MM.yyyy hh:mm", "dd.MM.yyyy HH", "dd.MM.yyyy dd", "EEE dd.MM.yyyy", "d.M.yyyyy"] {
            #expect(try await run(Array(text.utf8), ["--date-format", format]).status == 64, "\(format)")
        }
        for options in [["--separator", "ab"], ["--separator", "\""], ["--encoding", "utf-7"], ["--json-column", "none"]] {
            #expect(try await run(Array(text.utf8), options).status == (options[0] == "--json-column" ? 1 : 64), "\(options)")
        }
        #expect(try await hapax.run("import", hapax.directory.path + "/table.csv", "--decimal-comma").status == 64)
    }

    @Test("what a table's columns were taken for is told where it is mixed, and rows of the future; --text ends it")
    func mixedColumnsAreTold() async throws {
        let later = "9998-01-01T00:00:00Z"
        let text =
            "at,customer,zip,flag,sum\n"
            + ["10115", "01067", "20095"].map { "2026-11-25T09:00:00Z,u,\($0),true,1\n" }.joined() + "\(later),u,,no,2\n"
        let first = try await run(Array(text.utf8), [])
        #expect(first.status == 0 && first.error.contains("column zip: 2 numbers, 1 text; --text zip keeps them alike"), "\(first)")
        #expect(first.error.contains("column flag: 3 truth values, 1 text") && !first.error.contains("column sum"))
        #expect(first.error.contains("1 row lies in the future"))
        let second = try await run(Array((text + "\(later),v,01067,,3\n").utf8), ["--text", "zip,flag"])
        #expect(second.status == 0 && !second.error.contains("column") && second.error.contains("2 rows lie in the future"), "\(second)")
        #expect(second.out.hasPrefix("1 stored, 4 duplicates"))
        let german = try await run(Array("at,customer,price\n2026-11-25T09:00:00Z,u,\"1,5\"\n2026-11-25T09:00:00Z,w,2\n".utf8), [])
        #expect(german.error.contains("column price: 1 text looks like a number with a decimal comma") && !german.error.contains("--text"))
    }

    @Test(
        "a column of JSON stays JSON where it is named, and is told of where it is not; of `properties` the members are the event's own (C29)"
    )
    func columnsOfJSONAreTaken() async throws {
        func table(_ cells: [String]) -> [UInt8] {
            let rows = cells.map { "2026-11-25T09:00:00Z,u,\"\($0.replacing("\"", with: "\"\""))\",pro\n" }
            return Array(("at,customer,properties,plan\n" + rows.joined()).utf8)
        }
        let objects = [#"{"$browser":"Safari","n":12345678901234567890}"#, #"{"plan":"free"}"#]
        let plain = try await run(table(objects), [])
        #expect(plain.status == 0 && plain.error.contains("column properties holds nothing but objects of JSON"), "\(plain)")
        #expect(plain.error.contains("--json-column properties"))
        server.change { ($0.stored, $0.batches) = ([:], []) }
        let taken = try await run(table(objects + ["not JSON", "[1]", ""]), ["--json-column", "properties"])
        #expect(taken.status == 3 && taken.out.hasPrefix("3 stored") && !taken.error.contains("holds nothing but"), "\(taken)")
        #expect(taken.error.contains("line 4: invalid_csv: the column 'properties' holds no JSON"))
        #expect(taken.error.contains("line 5: invalid_csv: the column 'properties' holds no object of JSON"))
        let expected = [#"{"$browser":"Safari","n":12345678901234567890,"plan":"pro"}"#, #"{"plan":"pro"}"#, #"{"plan":"pro"}"#]
        #expect(sent.map { String(decoding: $0.properties, as: UTF8.self) } == expected)
        server.change { $0.batches = [] }
        let others = Array("at,customer,tags\n2026-11-25T09:00:00Z,v,\"[1, {\"\"a\"\":null}]\"\n".utf8)
        #expect(try await run(others, ["--json-column", "tags"]).status == 0)
        #expect(sent.map { String(decoding: $0.properties, as: UTF8.self) } == [#"{"tags":[1,{"a":null}]}"#])
    }
}
