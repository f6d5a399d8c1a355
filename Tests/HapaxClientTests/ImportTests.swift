import Foundation
import HapaxModel
import Testing

@testable import HapaxClient

/// What interrupts an import, and what it finds when it goes on.
@Suite("hapax import, interrupted and resumed")
struct ImportTests {
    private let server: IngestStandIn
    private let hapax: CommandLine

    init() throws {
        server = try IngestStandIn()
        hapax = CommandLine(server: server.url)
    }

    private func lines(_ range: Range<Int>, text: String = "x") -> [String] {
        range.map {
            #"{"event_id":"\#(EventID.derived(name: text, key: "\($0)"))","event":"\#(text)","time":\#($0),"distinct_id":"u"}"#
        }
    }

    private func letters() async throws -> [String] {
        try await hapax.run("dead-letters", "list", "--json").out.split(separator: "\n").map(String.init)
    }

    @Test("a signal in the middle of a line buries no part of it (I1, I2)", arguments: [SIGINT, SIGTERM])
    func signalInsideALine(signal: Int32) async throws {
        let pipe = Pipe()
        let lines = lines(0..<501)
        let text = lines[..<500].joined(separator: "\n") + "\n" + lines[500].prefix(60)
        try pipe.fileHandleForWriting.write(contentsOf: Data(text.utf8))
        let (process, finish) = try hapax.start(["import", "-", "--json"], openInput: pipe)
        await server.requests(1)
        // All of it has been read once the pipe is empty.
        let deadline = ContinuousClock.now + .seconds(30)
        var left: Int32 = 1
        while left > 0, ContinuousClock.now < deadline {
            #expect(ioctl(pipe.fileHandleForWriting.fileDescriptor, UInt(FIONREAD), &left) == 0)
            await Task.yield()
        }
        #expect(left == 0)
        kill(process.processIdentifier, signal)
        let output = await finish()
        #expect(output.status == 128 + signal)
        #expect(output.json["dead_lettered"] as? Int == 0)
        #expect(try await letters() == [])
        try pipe.fileHandleForWriting.close()
    }
}
