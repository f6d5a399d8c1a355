import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

/// Events that nobody thought of, read by the scanner and by PostgreSQL's `jsonb`. `make fuzz` tries a hundred times as many.
@Suite("The scanner and jsonb are of one mind (R33, I3)", .endsWhenItHangs(after: .seconds(600)))
struct JSONBFuzzTests {
    /// Something of everything, so that a mutation can hit anything.
    private static let rich = Array(
        #"""
        {"event_id":"0199a385-187b-7abc-8def-0123456789ab","event":"caf\u00e9 \ud83d\ude00\n","time":1,"distinct_id":"d\/é","sequence":41,
        "properties":{"a":[1,-2.5e3,0,-0.0,1E-2,true,false,null,"é😀\b",{"b":{},"c":[]},12345678901234567890],"\"k":"\\\/","n":1e308,"n":0.10}}
        """#.utf8)

    @Test(
        "what is accepted, jsonb accepts with the same value; what is refused as no JSON, it refuses; limits of ours are no such refusals")
    func mutationsAgreeWithJSONB() async throws {
        let wanted = ProcessInfo.processInfo.environment["HAPAX_FUZZ_EVENTS"].flatMap { Int($0) } ?? 10_000
        let connection = try PostgresConnection(uri: try await PostgresCluster.shared.makeDatabase())
        // Bytes, since PostgreSQL is to be asked about UTF-8 as well. pg_input_is_valid is of version 16.
        try connection.execute(
            """
            CREATE FUNCTION tried(bytes bytea) RETURNS jsonb LANGUAGE plpgsql AS
            $$ BEGIN RETURN convert_from(bytes, 'UTF8')::jsonb; EXCEPTION WHEN others THEN RETURN NULL; END $$
            """)
        var random = SeededRandom.printed()
        var agreed = (accepted: 0, refused: 0)
        for start in stride(from: 0, to: wanted, by: 1_000) {
            let events = (0..<1_000).map { _ in random.mutated(Self.rich) }
            let literal = "{" + events.map { #""\\x\#(Self.hexadecimal($0))""# }.joined(separator: ",") + "}"
            let rows = try connection.query(
                """
                SELECT j IS NULL, j->>'event', j->>'distinct_id', coalesce(nullif(j->'properties', 'null'), '{}')
                FROM (SELECT tried(bytes) AS j, place FROM unnest($1::bytea[]) WITH ORDINALITY AS u (bytes, place)) AS t ORDER BY place
                """, [literal])
            for (bytes, row) in zip(events, rows) {
                let scanned = EventScanner.scan(bytes[...])
                let context = "seed \(random.seed), from event \(start): \(String(decoding: bytes, as: UTF8.self))"
                switch scanned.problem?.reason {
                case nil:
                    agreed.accepted += 1
                    #expect(row[0] == "f", "\(context)")
                    #expect(row[1].map { Array($0.utf8) } == Array(scanned.name), "\(context)")
                    #expect(row[2].map { Array($0.utf8) } == Array(scanned.distinctID), "\(context)")
                    let stored = Array((row[3] ?? "").utf8)
                    #expect(ValueHash.hash(json: stored[...]) == ValueHash.hash(json: scanned.properties), "\(context)")
                case .invalidJSON, .invalidUTF8, .nulCharacter, .loneSurrogate:
                    agreed.refused += 1
                    #expect(row[0] == "t", "\(context)")
                default: break
                }
            }
        }
        // Enough of both, or the agreement means nothing.
        #expect(agreed.accepted > wanted / 20 && agreed.refused > wanted / 20)
    }

    private static func hexadecimal(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }
}
