import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// A server that stops without a word while its kernel still takes connections: SIGSTOP, a frozen machine, a debugger.
@Suite("A server that is stopped", .serialized, .endsWhenItHangs)
struct StoppedServerTests {
    private func start(_ directory: TemporaryDirectory, port: Int) throws -> EventClient {
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:\(port)", writeKey: ServerUnderTest.key, queueDirectory: directory.path("queue"))
        configuration.uploads.interval = nil
        configuration.requestTimeout = .seconds(2)
        return try EventClient.start(configuration)
    }

    private func expectOnce(_ ids: [EventID], in store: PipelineStore) async throws {
        let stored = try await store.rows().map(\.id)
        #expect(stored.count == ids.count && Set(stored) == Set(ids))
    }

    @Test("a flush ends with the request's timeout, storing goes on, and all of it is stored once when it runs again (R15, D6, I1, I2)")
    func flushEnds() async throws {
        let store = try await PipelineStore(.sqlite)
        let server = try await ServerUnderTest.start(store)
        let directory = TemporaryDirectory("stopped")
        let client = try start(directory, port: server.port)
        var ids: [EventID] = []
        for index in 0..<30 { ids.append(try await client.trackDurably("before \(index)")) }
        // The connection that is kept is open when the server stops.
        while await client.flush().remaining > 0 {}
        await server.process.stop()
        async let flush = client.flush()
        for index in 0..<120 { ids.append(try await client.trackDurably("meanwhile \(index)")) }
        let first = await flush
        let second = await client.flush()
        #expect(first.stored == 0 && [nil, .transport(.timedOut)].contains(first.failure), "\(first)")
        #expect(second.remaining == 120 && second.failure == .transport(.timedOut), "\(second)")
        server.process.kill(SIGCONT)
        while await client.flush().remaining > 0 {}
        await client.shutdown(within: .zero)
        await server.stop()
        try await expectOnce(ids, in: store)
    }

    @Test("the end of a terminal is no stop (S27)")
    func hangUpChangesNothing() async throws {
        let server = try await ServerUnderTest.start(try await PipelineStore(.sqlite))
        server.process.kill(SIGHUP)
        #expect(try await RawHTTP.get(port: server.port, path: "/health/live").status == 200)
        #expect(await server.stop() == .exited(0))
    }

    @Test("a shutdown ends within its time, keeps what was not acknowledged, and the next client sends it (R38, I1, I15)")
    func shutdownEnds() async throws {
        let store = try await PipelineStore(.sqlite)
        let server = try await ServerUnderTest.start(store)
        let directory = TemporaryDirectory("stopped")
        let client = try start(directory, port: server.port)
        await server.process.stop()
        var ids: [EventID] = []
        for index in 0..<120 { ids.append(try await client.trackDurably("e \(index)")) }
        let report = await client.shutdown(within: .milliseconds(300))
        #expect(report.stored == 120 && report.lost == 0, "\(report)")
        server.process.kill(SIGCONT)
        // What the shutdown left behind at its limit may hold the file for a while; then the file is a leftover.
        let next = try start(directory, port: server.port)
        while try await store.rows().count < ids.count {
            _ = await next.flush()
            _ = await next.open?.leftovers.send(isManual: true)
        }
        await next.shutdown(within: .zero)
        await server.stop()
        try await expectOnce(ids, in: store)
    }
}
