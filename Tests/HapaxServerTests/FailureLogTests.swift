import HapaxModel
import Logging
import Testing
import StoreStandIns

@testable import HapaxServer

@Suite("Failures of the store, in the log (S17, S27)", .endsWhenItHangs)
struct FailureLogTests {
    @Test("Each reason is told once in ten seconds, with how many there were; that it is over is told once")
    func failuresAreToldOnce() {
        let (log, clock) = (RecordedLog(), Locked(ContinuousClock.now))
        let failures = FailureLog("failed", recovery: "works again", logger: log.logger, now: { clock.withLock { $0 } })
        failures.succeeded()
        for _ in 0..<5 { failures.failed(.unavailable("a")) }
        failures.failed(.tooHeavy)
        clock.withLock { $0 += ServerLimits.logInterval }
        for _ in 0..<2 { failures.failed(.tooHeavy) }
        for _ in 0..<2 { failures.succeeded() }
        failures.failed(.tooHeavy)
        #expect(log.lines.map(\.message) == ["failed", "failed", "failed", "works again", "failed"])
        #expect(log.lines.map { $0.metadata["suppressed.count"] } == ["0", "4", "0", nil, "0"])
        #expect(log.lines[3].metadata == ["failures.count": "8", "failures.seconds": "10"])
    }

    @Test("The return of a lost database is logged, of groups and of reads alike", arguments: ["groups", "reads"])
    func returnIsLogged(what: String) async throws {
        let (store, log) = (ScriptedStore(), RecordedLog())
        let writer = GroupCommitWriter(store: store, metrics: ServerMetrics(), logger: log.logger)
        let questions = Questions(
            keys: Keys(RunningServer.keys, registry: Registry(database: NoSQL())) { 0 }, store: store, limits: ServerLimits(),
            failures: FailureLog("The store could not be read", recovery: "The store can be read again", logger: log.logger))
        async let running: Void = writer.run()
        for fails in [true, true, false, false] {
            store.fail { _ in fails ? .unavailable("test") : nil }
            if what == "groups" {
                _ = try? await writer.submit(try Sample.request([Sample.event(Sample.id(1))]))
            } else {
                _ = try? await questions.reading { () throws(StoreError) in if fails { throw .unavailable("test") } }
            }
        }
        writer.stop()
        await running
        // On a starved machine the second failure can come ten seconds after the first, which is told again.
        #expect(log.lines.count { $0.message.contains("again") } == 1 && log.lines.last?.message.contains("again") == true)
        #expect(log.lines.last?.metadata["failures.count"] == "2")
    }
}
