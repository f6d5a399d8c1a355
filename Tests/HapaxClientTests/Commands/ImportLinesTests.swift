import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient
@testable import hapax

/// Which lines travel together, and what becomes of one that cannot travel.
@Suite("hapax import, line by line", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct ImportLinesTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func line(_ number: Int, text: String = "") -> String {
        let id = EventID.derived(name: "line", key: "\(number)")
        return #"{"event_id":"\#(id)","event":"e","time":\#(number),"distinct_id":"u","properties":{"x":"\#(text)"}}"#
    }

    @Test("a line that no batch can hold is found and buried, and every other one is delivered (I1, I8)", arguments: [0, 3, 9])
    func poisonousLineIsFound(poison: Int) async throws {
        server.change { $0.isPoison = { $0.time == Int64(poison) } }
        let output = try await hapax.run("import", "-", "--json", input: (0..<10).map { line($0) }.joined(separator: "\n"))
        #expect(output.status == 3)
        #expect(output.json["stored"] as? Int == 9 && output.json["dead_lettered"] as? Int == 1)
        let letter = try await hapax.run("dead-letters", "list", "--json").json
        #expect((letter["detail"] as? String)?.hasPrefix("line \(poison + 1): ") == true)
    }

    @Test("a line that begins with more blanks than a line may have is no blank line: it is told (I1, I12)", arguments: [true, false])
    func longBlankBeginningIsTold(isTerminated: Bool) async throws {
        let path = hapax.directory.path + "/events.ndjson"
        let blanks = String(repeating: " ", count: LineReader.maximumLineBytes)
        let text = line(0) + "\n" + (isTerminated ? blanks + line(1) + "\n" + line(2) + "\n" : blanks + line(1))
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        let output = try await hapax.run("import", path, "--json")
        #expect(output.status == (isTerminated ? 3 : 2))
        #expect(server.stored.count == (isTerminated ? 2 : 1))
        #expect(output.json["dead_lettered"] as? Int == (isTerminated ? 1 : 0))
    }

    @Test("events of a pipe are sent as they come, and no half of one (I1)")
    func eventsOfAPipeAreSentAsTheyCome() async throws {
        let pipe = Pipe()
        let (_, finish) = try hapax.start(["import", "-", "--json"], openInput: pipe)
        let half = line(2).utf8.count / 2
        try pipe.fileHandleForWriting.write(contentsOf: Data("\(line(0))\n\(line(1))\n\(line(2).prefix(half))".utf8))
        await server.requests(1)
        #expect(server.batches.map { $0.scanned.events.map(\.time) }.joined().elementsEqual([0, 1]))
        try pipe.fileHandleForWriting.write(contentsOf: Data("\(line(2).dropFirst(half))\n".utf8))
        await server.requests(2)
        // A bad line is kept before more comes as well.
        try pipe.fileHandleForWriting.write(contentsOf: Data("bad\n".utf8))
        while try await hapax.run("dead-letters", "list", "--json").out.isEmpty {}
        try pipe.fileHandleForWriting.close()
        let output = await finish()
        #expect(output.status == 3 && output.json["stored"] as? Int == 3 && output.json["lines"] as? Int == 4)
    }

    @Test("what a pipe gave and the server did not take is told, since it cannot be read again", arguments: [true, false])
    func undeliveredOfAPipeIsTold(isPipe: Bool) async throws {
        server.change { $0.silentAfter = 0 }
        // More than a batch, and half a line: what has left the pipe is counted, taken up or not.
        let text = (0..<549).map { line($0) + "\n" }.joined() + "{half"
        let path = hapax.directory.path + "/events.ndjson"
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        let (process, finish) = try hapax.start(["import", isPipe ? "-" : path], openInput: isPipe ? pipe(of: text) : nil)
        await server.requests(1)
        process.kill(SIGINT)
        let output = await finish()
        #expect(output.status == 128 + SIGINT && output.error.contains("not all delivered: interrupted"))
        #expect(output.error.contains("550 lines were read and not delivered") == isPipe)
    }

    private func pipe(of text: String) throws -> Pipe {
        let pipe = Pipe()
        try pipe.fileHandleForWriting.write(contentsOf: Data(text.utf8))
        return pipe
    }

    @Test("who gives up learns why nothing was delivered, as far as that is known", arguments: [true, false])
    func givingUpSaysWhy(isAnswered: Bool) async throws {
        server.change { state in if isAnswered { state.failuresLeft = .max } else { state.silentAfter = 0 } }
        let output = try await hapax.run("import", "-", "--give-up-after", "1", "--json", input: line(0) + "\n")
        #expect(output.status == 2)
        let limit = "nothing was delivered for 1 seconds"
        #expect(output.json["failure"] as? String == limit + (isAnswered ? ": status 503, not an answer of an ingest server" : ""))
        #expect(output.json["read_and_gone"] as? Int == 1)
    }

    @Test("a batch of long lines stays within a client's byte limit (I13)")
    func batchesObeyTheByteLimit() async throws {
        let text = String(repeating: "x", count: 30_000)
        let output = try await hapax.run("import", "-", "--json", input: (0..<40).map { line($0, text: text) }.joined(separator: "\n"))
        #expect(output.status == 0 && server.stored.count == 40)
        #expect(server.batches.count > 1 && server.batches.allSatisfy { $0.body.count <= EventLimits.maximumClientBatchBytes })
    }

    @Test("a line that is cut is a dead letter, also if a whole event stands before the cut (I3)")
    func cutLineIsNoEvent() async throws {
        let cut = line(0) + String(repeating: " ", count: 2 * 1024 * 1024) + "and more"
        let output = try await hapax.run("import", "-", "--json", input: cut + "\n" + line(1) + "\n")
        #expect(output.status == 3)
        #expect(output.json["dead_lettered"] as? Int == 1 && server.batches.flatMap { $0.scanned.events.map(\.time) } == [1])
    }
}
