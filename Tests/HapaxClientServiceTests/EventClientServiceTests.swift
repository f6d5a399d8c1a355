import CoreMetrics
import HapaxModel
import HapaxTestKit
import Logging
import MetricsTestKit
import ServiceLifecycle
import TestSupport
import Testing

@testable import HapaxClient
@testable import HapaxClientService

@Suite("The client as a service (I6, I12, I15, I17)", .endsWhenItHangs)
struct EventClientServiceTests {
    private let directory = TemporaryDirectory("service")
    private let log = RecordedLog()

    private var configuration: EventClient.Configuration { .quiet(in: directory) }

    private func service(
        _ server: ScriptedTransport, drainTime: Duration = .seconds(600), clock: any ClientClock = SystemClock()
    ) throws -> EventClient {
        var configuration = configuration
        (configuration.drainTime, configuration.logger) = (drainTime, log.logger)
        return try EventClient.start(configuration, clock: clock) { server }
    }

    @Test("graceful shutdown delivers what was tracked, backoff after backoff, then refuses, and says that nothing is left")
    func drainsOnShutdown() async throws {
        let server = ScriptedTransport(
            ScriptedTransport.receipts(after: [.failure(.cannotConnect), .success(TransportAnswer(status: 503))]))
        let service = try service(server)
        try await running(service) { _ in
            for name in ["a", "b", "c"] { #expect(service.track(name) != nil) }
            try await service.trackDurably("d")
        }
        #expect(server.batches.map(\.names) == Array(repeating: ["a", "b", "c", "d"], count: 3))
        #expect(await service.shutdown(within: .zero) == ShutdownReport(stored: 0, lost: 0))
        #expect(service.track("late") == nil)
        #expect(log.lines.last?.message == "Nothing is left to deliver")
    }

    @Test("whom an event concerns is said with the event (R56)")
    func identityIsSaidWithTheEvent() async throws {
        let server = ScriptedTransport()
        let service = try service(server)
        try await running(service) { _ in
            service.track("viewed", distinctID: "customer-1")
            try await service.trackDurably("paid", distinctID: "customer-2")
        }
        #expect(
            server.batches.flatMap(\.scanned.events).map { String(decoding: $0.distinctID, as: UTF8.self) } == ["customer-1", "customer-2"])
    }

    @Test("what is left is said, with the reason, and is on disk for the next run; a wrong key is not asked again and again (I16)")
    func saysWhatIsLeft() async throws {
        let server = ScriptedTransport { _ in .success(TransportAnswer(status: 401)) }
        // Its time stands still: a machine that is busy for longer than a shutdown's limit changes nothing.
        let service = try service(server, clock: TestClock())
        try await running(service) { _ in
            for name in ["a", "b"] { service.track(name) }
        }
        #expect(await service.shutdown(within: .zero) == ShutdownReport(stored: 2, lost: 0, failure: .status(401, code: nil)))
        #expect(server.batches.count == 1)
        let line = try #require(log.lines.last)
        #expect(line.message == "Events are left on disk for the next run" && line.metadata["hapax.left"] == "2")
        #expect(!log.lines.contains { "\($0)".contains("test-key") })
        let next = ScriptedTransport()
        try await running(try self.service(next)) { _ in }
        #expect(next.batches.flatMap(\.names) == ["a", "b"])
    }

    @Test(
        "without a configuration, or with one that cannot start, the service runs like any other and refuses visibly",
        arguments: [true, false])
    func disabledServiceRuns(isConfigured: Bool) async throws {
        let metrics = TestMetrics()
        var broken = configuration
        broken.server = EventClient.Configuration.url("nowhere")
        broken.metricsFactory = metrics
        let service = EventClient(isConfigured ? broken : nil, logger: log.logger)
        #expect(service.open == nil)
        #expect(service.startFailure == (isConfigured ? .malformedURL : nil))
        #expect(log.lines.count == (isConfigured ? 1 : 0))
        let neighbour = Neighbour()
        try await running(service, neighbour) { _ in
            #expect(service.track("a") == nil)
            await #expect(throws: TrackError.refused(.disabled)) { try await service.trackDurably("b") }
            await neighbour.runs()
            // A service that ends by itself would have cancelled the group, and this one with it.
            #expect(!neighbour.wasStopped)
        }
        #expect(await service.status().dropped == ["disabled": 2])
        #expect(log.lines.count == (isConfigured ? 2 : 1), "said once at the start, and at the end how many")
        if isConfigured {
            #expect(try metrics.expectCounter("hapax.client.dropped", [("reason", "disabled")]).totalValue == 2)
        }
    }

    @Test("cancelled instead of stopped, it stores what was tracked and sends nothing (I6)")
    func cancellationStores() async throws {
        let server = ScriptedTransport()
        // Storing has 500 ms then, which do not pass on this clock, however busy the machine is.
        let service = try service(server, clock: TestClock())
        let task = Task { await service.run() }
        for index in 0..<100 { service.track("event \(index)") }
        task.cancel()
        await task.value
        #expect(await service.shutdown(within: .zero) == ShutdownReport(stored: 100, lost: 0))
        #expect(server.batches.isEmpty)
        let next = ScriptedTransport()
        try await running(try self.service(next)) { _ in }
        #expect(next.batches.flatMap(\.names).count == 100)
    }

    @Test("cancelled while it drains, it ends at once with the rest on disk")
    func cancellationEndsTheDrain() async throws {
        let refusal = TransportAnswer(status: 503, headers: ["retry-after": "200"])
        let server = ScriptedTransport { _ in .success(refusal) }
        let service = try service(server, drainTime: .seconds(300))
        let group = ServiceGroup(services: [service], logger: Logger(label: "group") { _ in SwiftLogNoOpLogHandler() })
        let task = Task { try await group.run() }
        service.track("a")
        await group.triggerGracefulShutdown()
        await server.requests(1)
        task.cancel()
        _ = await task.result
        let report = await service.shutdown(within: .zero)
        #expect(report.stored == 1 && report.lost == 0)
    }

    @Test("named before what tracks, it takes the last events; named behind, it refuses them", arguments: [true, false])
    func orderDecides(isNamedFirst: Bool) async throws {
        let server = ScriptedTransport()
        let service = try service(server)
        // As a web server does that answers its last requests during its own shutdown.
        let neighbour = Neighbour(beforeItStops: { service.track("last") != nil })
        let (first, second): (any Service, any Service) = isNamedFirst ? (service, neighbour) : (neighbour, service)
        try await running(first, second) { _ in await neighbour.runs() }
        #expect(neighbour.wasTaken == isNamedFirst)
        #expect(server.batches.flatMap(\.names) == (isNamedFirst ? ["last"] : []))
    }
}

/// Another service of the group.
private final class Neighbour: Service {
    private struct State {
        var wasStopped = false
        var wasTaken: Bool?
    }

    private let state = Locked(State())
    private let begun = AwaitedCount()
    private let beforeItStops: @Sendable () -> Bool

    init(beforeItStops: @escaping @Sendable () -> Bool = { true }) {
        self.beforeItStops = beforeItStops
    }

    var wasStopped: Bool { state.withLock { $0.wasStopped } }
    var wasTaken: Bool? { state.withLock { $0.wasTaken } }

    func runs() async {
        await begun.reaches(1)
    }

    func run() async {
        begun.set(1)
        try? await gracefulShutdown()
        let wasTaken = beforeItStops()
        state.withLock { ($0.wasStopped, $0.wasTaken) = (true, wasTaken) }
    }
}
