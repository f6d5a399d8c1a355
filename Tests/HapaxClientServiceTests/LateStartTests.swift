import CoreMetrics
import Dispatch
import Foundation
import HapaxModel
import HapaxTestKit
import Logging
import MetricsTestKit
import TestSupport
import Testing

@testable import HapaxClient
@testable import HapaxClientService

/// A client that cannot start when its service does.
@Suite("A client that starts late (I12, I17)", .endsWhenItHangs)
struct LateStartTests {
    private let directory = TemporaryDirectory("late-start")
    private let log = RecordedLog()
    private let clock = TestClock()
    private let server = ScriptedTransport()

    private var configuration: EventClient.Configuration { .quiet(in: directory) }

    /// A file in the directory's place, until it is cleared.
    private func obstruct() throws { try Data().write(to: URL(fileURLWithPath: directory.path("queue"))) }
    private func clear() throws { try FileManager.default.removeItem(atPath: directory.path("queue")) }
    private let obstructed = StartError.queueUnusable(StorageFailure(errno: ENOTDIR))

    private func service(_ configuration: EventClient.Configuration) -> EventClient {
        service(configuration) { [server] configuration, hub throws(StartError) in
            try OpenClient.open(configuration, clock: SystemClock(), hub: hub) { server }
        }
    }

    private func service(
        _ configuration: EventClient.Configuration,
        open: @escaping @Sendable (EventClient.Configuration, DeliveryHub) throws(StartError) -> OpenClient
    ) -> EventClient {
        var configuration = configuration
        configuration.drainTime = .seconds(600)
        return EventClient(configuration, logger: log.logger, clock: clock) { configuration, hub, _ in
            do throws(StartError) { return .success(try open(configuration, hub)) } catch { return .failure(error) }
        }
    }

    /// Lets the time of the next attempt come.
    private func tryAgain() async {
        await clock.scheduled(1)
        clock.advance(by: .seconds(60))
    }

    /// Lets attempt after attempt come until so much has been logged: a process that another test begins at that moment holds for a while what
    /// this one has let go of.
    private func tryAgain(untilLogged count: Int) async {
        while log.lines.count < count {
            await withTaskGroup(of: Void.self) { group in
                group.addTask { await clock.scheduled(1) }
                group.addTask { await log.lines(count) }
                await group.next()
                group.cancelAll()
            }
            if log.lines.count < count { clock.advance(by: .seconds(60)) }
        }
    }

    @Test("events are refused and counted until then, taken from then on, and the server learns how many there were before (R56)")
    func startsLater() async throws {
        let metrics = TestMetrics()
        var configuration = configuration
        configuration.metricsFactory = metrics
        try obstruct()
        let service = service(configuration)
        #expect(service.isConfigured && service.open == nil && service.startFailure == obstructed)
        try await running(service) { _ in
            for name in ["a", "b"] { #expect(service.track(name) == nil) }
            await tryAgain()
            await clock.scheduled(1)
            await #expect(throws: TrackError.refused(.disabled)) { try await service.trackDurably("c") }
            try clear()
            await tryAgain(untilLogged: 2)
            #expect(service.open != nil && service.startFailure == nil)
            try await service.trackDurably("d")
        }
        #expect(server.batches.map(\.names) == [["d"]])
        #expect(server.batches.first?.scanned.envelope.refused == ["disabled": 3])
        #expect(await service.status().dropped == ["disabled": 3])
        #expect(await service.shutdown(within: .zero) == ShutdownReport(stored: 0, lost: 0))
        #expect(try metrics.expectCounter("hapax.client.dropped", [("reason", "disabled")]).totalValue == 3, "each once")
        #expect(
            log.lines.map(\.message) == [
                "Events are disabled: the client did not start, and is tried again", "Events are enabled: the client has started",
                "Nothing is left to deliver",
            ])
        #expect(log.lines[1].metadata["hapax.refused"] == "3")
    }

    @Test("refusals alone are told as well, with no event tracked afterwards (I12)")
    func refusalsAloneAreCounted() async throws {
        try obstruct()
        let service = service(configuration)
        try await running(service) { _ in
            service.track("a")
            try clear()
            await tryAgain(untilLogged: 2)
        }
        let file = try QueueFile(try FileClaim(1, in: QueueDirectory(path: directory.path("queue"))), durability: .process)
        #expect(file.counters.dropped == ["disabled": 1])
        file.close()
    }

    @Test("it is tried again for as long as it fails, a minute apart at most, and each reason is logged once (I16)")
    func triesForAsLongAsItFails() async throws {
        try obstruct()
        let service = service(configuration)
        try await running(service) { _ in
            for _ in 0..<12 {
                await clock.scheduled(1)
                let delay = try #require(clock.pending.first)
                // A phone that another test of this process unlocks makes for one attempt more.
                let failures = min(clock.everScheduled, 12)
                #expect(delay >= .milliseconds(100) && delay <= min(.seconds(1 << (failures - 1)), .seconds(60)), "\(delay) \(failures)")
                clock.advance(by: delay)
            }
            await clock.scheduled(1)
            #expect(service.startFailure == obstructed)
            try clear()
            await tryAgain(untilLogged: 2)
            #expect(service.open != nil)
        }
        #expect(log.lines.first?.level == .error)
        #expect(log.lines.count == 3)
    }

    @Test("what no time changes is not tried again", arguments: [StartError.malformedURL, .invalidKey])
    func hopelessIsNotTriedAgain(failure: StartError) async throws {
        var configuration = configuration
        if failure == .malformedURL { configuration.server = EventClient.Configuration.url("nowhere") } else { configuration.writeKey = "" }
        let service = service(configuration)
        #expect(service.startFailure == failure)
        try await running(service) { _ in }
        #expect(clock.everScheduled == 0)
    }

    @Test("a service that ends tries no more")
    func endsWithoutItsClient() async throws {
        try obstruct()
        let service = service(configuration)
        try await running(service) { _ in await clock.scheduled(1) }
        #expect(clock.pending.isEmpty)
        #expect(service.open == nil)
        try clear()
    }

    @Test("a start that hangs keeps no service from ending, and its client lets go of the queue if it comes all the same")
    func hangingStartIsLeftBehind() async throws {
        let attempts = Locked(0)
        let begun = AwaitedCount()
        let disk = DispatchSemaphore(value: 0)
        let ended = AwaitedCount()
        let service = service(configuration) { [obstructed] configuration, hub throws(StartError) in
            let attempt = attempts.withLock { attempts in
                attempts += 1
                return attempts
            }
            guard attempt > 1 else { throw obstructed }
            begun.set(1)
            disk.wait()
            return try OpenClient.open(configuration, clock: SystemClock(), hub: hub) { ClosingTransport(closed: ended) }
        }
        try await running(service) { _ in
            await tryAgain()
            await begun.reaches(1)
        }
        #expect(service.open == nil && service.track("late") == nil)
        disk.signal()
        await ended.reaches(1)
        #expect(service.open == nil)
    }
}

/// Tells when it is closed.
private struct ClosingTransport: EventTransport {
    let closed: AwaitedCount

    func send(_ request: TransportRequest) async -> Result<TransportAnswer, TransportFailure> { .failure(.cannotConnect) }
    func close() { closed.set(1) }
}
