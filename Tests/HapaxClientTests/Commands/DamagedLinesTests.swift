import Foundation
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

/// What damage to a file costs: the rows that are damaged, never the ones around them, and each of its lines has an end.
@Suite("hapax import, of files with damaged lines (A1)", .endsWhenItHangs)
struct DamagedLinesTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private static let options = ["--csv", "--name", "e", "--time", "at", "--user", "who", "--json"]
    private static let header = "row,at,who,note,n"

    private func run(_ text: [UInt8], _ options: [String]) async throws -> CommandLine.Output {
        let path = hapax.directory.path + "/events"
        try Data(text).write(to: URL(fileURLWithPath: path))
        return try await hapax.start(["import", path] + options).finish()
    }

    private func row(_ name: String, note: String = "") -> String { "\(name),2026-11-25T09:00:00Z,u,\(note),7" }

    /// The texts of each event that was sent, by the columns they come from.
    private var sentTexts: [[String: String]] {
        get throws {
            try server.batches.flatMap(\.scanned.events).map { event in
                let object = try #require(try JSONSerialization.jsonObject(with: Data(event.wire)) as? [String: Any])
                var texts = (object["properties"] as? [String: Any] ?? [:]).compactMapValues { $0 as? String }
                texts["who"] = object["distinct_id"] as? String
                return texts
            }
        }
    }

    @Test("a stray quotation mark costs the line that it is in, whatever follows; a row of several lines that is whole is one event")
    func strayMarksCostTheirLine() async throws {
        let between = (1...3).map { row("S\($0)") }
        for (name, first, last, isLastSound) in [
            ("a mark in a row behind", row("A", note: "\"open"), row("B", note: "\"x\""), true),
            ("an empty cell in marks behind", row("A", note: "\"open"), row("B", note: "\"\"") + "\n" + row("C", note: "\"x\""), true),
            ("a cell of one separator behind", row("A", note: "\"open"), row("B", note: "\",\""), true),
            ("inches in the same column behind", row("A", note: "\"open"), row("B", note: "12\""), true),
            ("inches in the first row as well", row("A", note: "\"12\" wide"), row("B", note: "12\""), true),
            ("a mark behind a mark that is closed", row("A", note: "\"a\"b"), row("B"), true),
            ("in the last column", row("A").dropLast() + "\"7", row("B"), true),
            ("in the time", "A,\"2026-11-25T09:00:00Z,u,,7", row("B", note: "x"), true),
            ("in both rows", row("A", note: "\"open"), "B,\"2026-11-25T09:00:00Z,u,,7", false),
            ("a row too short behind", row("A", note: "\"open"), "B,\",\"", false),
        ] as [(String, String, String, Bool)] {
            server.change { ($0.stored, $0.batches) = ([:], []) }
            let lines = [Self.header, row("S0"), first] + between + [last, row("S9")]
            let text = lines.joined(separator: "\n") + "\n"
            let output = try await run(Array(text.utf8), Self.options)
            let rejected = isLastSound ? 1 : 2
            let count = text.split(separator: "\n").count - 1
            #expect(output.status == 3 && output.json["rejected"] as? Int == rejected, "\(name): \(output)")
            #expect(output.json["stored"] as? Int == count - rejected && output.error.contains("line 3: invalid_csv"), "\(name): \(output)")
        }
        server.change { ($0.stored, $0.batches) = ([:], []) }
        let whole = Self.header + "\n" + row("A", note: "\"one, \"\"two\"\"\nthree,four\n,,\n\"") + "\n" + row("B") + "\n"
        #expect(try await run(Array(whole.utf8), Self.options).status == 0)
        #expect(try sentTexts.map { $0["note"] } == ["one, \"two\"\nthree,four\n,,\n", nil])
    }

    @Test("random damage to a table: each line is an event, part of an event's text, or rejected, and each row that is sound is stored")
    func everyLineOfATableHasAnEnd() async throws {
        var random = SeededRandom.printed()
        // No empty line within: damage would make it a line of the table, and those are skipped.
        let notes = [
            "", "plain", "\"with, comma\"", "\"a \"\"quoted\"\" word\"", "\"\"", "5\"", "\"two\nlines\"", "\"a\nb, c\n\"", "x;y",
        ]
        for share in [0.01, 0.05, 0.2, 0.5, 1] {
            server.change { ($0.stored, $0.batches) = ([:], []) }
            var (text, sound) = (Array((Self.header + "\n").utf8), Set<String>())
            for index in 0..<300 {
                let isDamaged = Double.random(in: 0..<1, using: &random) < share
                let note = notes[Int.random(in: 0..<notes.count - (isDamaged ? 1 : 0), using: &random)]
                let row = Array(self.row("r\(index)", note: note).utf8)
                if !isDamaged { sound.insert("r\(index)") }
                text += (isDamaged ? damaged(row, &random) : row) + [0x0A]
            }
            // A damaged time may have lost its zone.
            let output = try await run(text, Self.options + ["--zone", "UTC"])
            let context = "seed \(random.seed), share \(share): \(output)"
            let texts = try sentTexts
            #expect(sound.isSubset(of: texts.compactMap { $0["row"] }), "\(context)")
            let inTexts = texts.flatMap(\.values).map { $0.utf8.count { $0 == 0x0A } }.reduce(0, +)
            let settled = ["stored", "duplicates", "dead_lettered", "rejected"].compactMap { output.json[$0] as? Int }.reduce(0, +)
            #expect(settled + inTexts + 1 == text.count { $0 == 0x0A }, "\(context)")
            #expect(output.status == ((output.json["rejected"] as? Int ?? 0) > 0 ? 3 : 0), "\(context)")
        }
    }

    /// One to three changes inside a row, one end of line at most among them.
    private func damaged(_ row: [UInt8], _ random: inout SeededRandom) -> [UInt8] {
        var row = row
        var tokens = ["\"", "\"\"", ",", ",\"", "\",", "\n", "\\", "x", "\u{0}"].map { Array($0.utf8) }
        for _ in 0..<Int.random(in: 1...3, using: &random) {
            if row.contains(0x0A) { tokens.removeAll { $0 == [0x0A] } }
            let place = Int.random(in: 2..<row.count - 2, using: &random)
            let token = tokens[Int.random(in: 0..<tokens.count, using: &random)]
            switch Int.random(in: 0..<4, using: &random) {
            case 0 where row[place] != 0x0A: row.remove(at: place)
            case 1 where row[place] != 0x0A: row[place] = UInt8.random(in: 0x20...0xFF, using: &random)
            default: row.insert(contentsOf: token, at: place)
            }
        }
        return row
    }

    @Test("random damage to lines of JSON: stored, duplicates, dead letters and rejected are the lines of the file")
    func everyLineOfJSONHasAnEnd() async throws {
        var random = SeededRandom.printed()
        for round in 0..<4 {
            var (lines, sound) = ([[UInt8]](), Set<EventID>())
            for index in 0..<300 {
                let id = EventID.derived(name: "line \(round)", key: "\(index)")
                let line = Array(#"{"event_id":"\#(id)","event":"e","time":\#(index),"distinct_id":"u","properties":{"a":[1,"é"]}}"#.utf8)
                if index < 299, Bool.random(using: &random) {
                    lines.append(random.mutated(line))
                } else {
                    lines.append(line)
                    sound.insert(id)
                }
            }
            let text = Array(lines.joined(separator: [0x0A])) + [0x0A]
            let output = try await run(text, ["--json"])
            let settled = ["stored", "duplicates", "dead_lettered", "rejected"].compactMap { output.json[$0] as? Int }.reduce(0, +)
            let blank = text.split(separator: 0x0A, omittingEmptySubsequences: false).dropLast().count {
                $0.allSatisfy { [0x20, 0x09, 0x0D].contains($0) }
            }
            let context = "seed \(random.seed), round \(round): \(output)"
            #expect(settled + blank == text.count { $0 == 0x0A } && output.status == 3, "\(context)")
            #expect(sound.isSubset(of: server.stored.keys), "\(context)")
        }
    }
}
