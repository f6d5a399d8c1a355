import HapaxModel
import Logging
import Testing

@testable import HapaxServer

@Suite("Upkeep of a running server", .endsWhenItHangs)
struct UpkeepServiceTests {
    /// Pauses that end when the test says.
    private final class Pauses: Sendable {
        private struct Pause {
            var length: Duration
            var end: AsyncStream<Void>.Continuation
        }

        private let state = Locked<[Pause]>([])

        func pause(_ length: Duration) async throws {
            let (stream, end) = AsyncStream.makeStream(of: Void.self)
            state.withLock { $0.append(Pause(length: length, end: end)) }
            for await _ in stream {}
            try Task.checkCancellation()
        }

        /// Waits until a pause of that length has begun, and ends it.
        func end(_ length: Duration) async {
            while !Task.isCancelled {
                let pause = state.withLock { pauses in pauses.firstIndex { $0.length == length }.map { pauses.remove(at: $0) } }
                if let pause { return pause.end.finish() }
                await Task.yield()
            }
        }
    }

    @Test("Upkeep is done at once and daily, after a failure in ten minutes, with a warning")
    func upkeepIsDoneInTime() async throws {
        let (store, metrics, log, pauses) = (ScriptedStore(), ServerMetrics(), RecordedLog(), Pauses())
        store.failUpkeep(true)
        let upkeep = Upkeep(store: store, metrics: metrics, currentTime: { Sample.now }, logger: log.logger)
        let daily = Periodic(
            every: ServerLimits.upkeepInterval, afterFailure: ServerLimits.upkeepIntervalAfterFailure, pause: { try await pauses.pause($0) }
        ) { try await upkeep.perform() }
        let running = Task { try await daily.run() }
        await log.lines(1)
        #expect(metrics.lastUpkeep == nil && log.lines.map(\.level) == [.warning])
        await pauses.end(ServerLimits.upkeepIntervalAfterFailure)
        await log.lines(2)
        store.failUpkeep(false)
        await pauses.end(ServerLimits.upkeepIntervalAfterFailure)
        await pauses.end(ServerLimits.upkeepInterval)
        #expect(metrics.lastUpkeep?.unixMilliseconds == Sample.now)
        while store.upkeeps < 4, !Task.isCancelled { await Task.yield() }
        running.cancel()
        try await running.value
    }
}

@Suite("Figures of open days, kept for a moment", .endsWhenItHangs)
struct ReportCacheTests {
    /// Computes when the test says.
    private final class Scans: Sendable {
        let state = Locked((count: 0, waiting: [CheckedContinuation<Result<DailyFigures, StoreError>, Never>]()))

        func scan() async throws(StoreError) -> DailyFigures {
            try await withCheckedContinuation { continuation in
                state.withLock { state in
                    state.count += 1
                    state.waiting.append(continuation)
                }
            }.get()
        }

        func end(_ result: Result<DailyFigures, StoreError>) async {
            while !Task.isCancelled {
                let waiting = state.withLock { state in state.waiting.isEmpty ? nil : state.waiting.removeFirst() }
                if let waiting { return waiting.resume(returning: result) }
                await Task.yield()
            }
        }
    }

    @Test("A question asked by many is one scan, and known for a moment; another one is its own")
    func manyAskersAreOneScan() async throws {
        let (cache, scans) = (ReportCache<Int, DailyFigures>(), Scans())
        async let first = cache.value(0) { () throws(StoreError) in try await scans.scan() }
        async let second = cache.value(0) { () throws(StoreError) in try await scans.scan() }
        await scans.end(.success(DailyFigures()))
        let both = try await (first, second)
        #expect(both.0 == both.1)
        _ = try await cache.value(0) { () throws(StoreError) in try await scans.scan() }
        #expect(scans.state.withLock { $0.count } == 1)
        async let other = cache.value(1) { () throws(StoreError) in try await scans.scan() }
        await scans.end(.success(DailyFigures()))
        _ = try await other
        #expect(scans.state.withLock { $0.count } == 2)
    }

    @Test("S17: the first asker's time is up for it alone; a store that fails has failed for all, and is asked again")
    func timeIsUpForTheFirstAlone() async throws {
        let (cache, scans) = (ReportCache<Int, DailyFigures>(), Scans())
        for (number, failure) in [StoreError.tooHeavy, .unavailable("test")].enumerated() {
            // Two ask before the first has an answer.
            let askers = (0..<2).map { _ in
                Task {
                    try? await cache.value(number) { () throws(StoreError) in try await scans.scan() }
                }
            }
            await scans.end(.failure(failure))
            let next = Task { await scans.end(failure == .tooHeavy ? .success(DailyFigures()) : .failure(failure)) }
            var known = 0
            for asker in askers { known += await asker.value == nil ? 0 : 1 }
            next.cancel()
            await next.value
            #expect(known == (failure == .tooHeavy ? 1 : 0))
        }
    }
}
