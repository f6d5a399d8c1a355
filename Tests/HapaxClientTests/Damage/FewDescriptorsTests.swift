import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A damaged queue file in a process that may open few files (C1)", .endsWhenItHangs)
struct FewDescriptorsTests {
    @Test("however few: what can be read arrives, then or with the next command, and exit 0 is only said when it has; the loss is told")
    func nothingIsForgotten() async throws {
        let server = try IngestStandIn()
        let whole = CommandLine(server: server.url)
        let client = try whole.client { _ in }
        let events = try await client.track(0..<400)
        await client.client.shutdown(within: .zero)
        let pages = try #require(DamagedPage.pages(of: whole.queue + "/1.sqlite"))
        try DamagedPage.make(in: whole.queue + "/1.sqlite", page: pages / 2)

        /// Flushes a copy of it with each limit, one after the other, until it is as with another.
        func flush(_ limits: [Int?], until end: Flush? = nil) async throws -> [Flush] {
            let copy = TemporaryDirectory()
            try FileManager.default.copyItem(atPath: whole.queue, toPath: copy.path("queue"))
            server.change { $0.stored = [:] }
            var flushes: [Flush] = []
            for limit in limits {
                let command = (limit.map { "ulimit -n \($0); " } ?? "") + #"exec "$0" flush --timeout 20 --json"#
                let environment = ["HAPAX_SERVER": server.url, "HAPAX_KEY": "secret-key", "HAPAX_QUEUE": copy.path("queue")]
                let process = try ChildProcess("/bin/sh", ["-c", command, try PackageLayout.executable("hapax")], environment: environment)
                let said = try? JSONDecoder().decode(Said.self, from: Data(await process.remainingOutput().utf8))
                let exit = await process.waitUntilExit()
                flushes.append(Flush(arrived: Set(server.stored.keys), exit: exit, said: said))
                if flushes.last == end { break }
            }
            return flushes
        }

        let usual = try await flush([nil])[0]
        let lost = try #require(usual.said?.lost)
        #expect(lost > 0 && usual.arrived.count == events.count - lost + 1, "all but a page's, and what tells of it")
        var refused = 0
        for limit in 10...40 {
            let flushes = try await flush([limit, nil], until: usual)
            if flushes[0].exit == .exited(0) { #expect(flushes[0].arrived == usual.arrived, "\(limit) descriptors") }
            #expect(flushes.last?.arrived == usual.arrived, "\(limit) descriptors: \(flushes.map(\.said))")
            #expect(flushes.contains { $0.said == usual.said }, "\(limit) descriptors: \(flushes.map(\.said))")
            if flushes[0].arrived != usual.arrived { refused += 1 }
        }
        #expect(refused > 0, "some of these limits are felt")
    }

    private struct Flush: Equatable {
        var arrived: Set<EventID>
        var exit: ChildProcess.Exit
        var said: Said?
    }

    private struct Said: Decodable, Hashable {
        var damaged_files: Int
        var lost: Int?
    }
}
