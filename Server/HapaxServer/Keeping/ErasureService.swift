import HapaxModel
import Logging

/// Performs erasures and removals that were asked for over HTTP, or that were interrupted, and forgets what this server remembers of such a user.
final class ErasureService: Sendable {
    private let erasures: Erasures
    private let live: Live
    /// Whether the store answers: an outage is reported once, by ``StoreWatch``.
    private let isStoreThere: @Sendable () async -> Bool
    private let failures: FailureLog
    private let logger: Logger
    /// The number of the latest erasure whose user is forgotten here.
    private let forgotten = Locked<Int32>(0)

    init(erasures: Erasures, live: Live, isStoreThere: @escaping @Sendable () async -> Bool, logger: Logger) {
        (self.erasures, self.live, self.isStoreThere, self.logger) = (erasures, live, isStoreThere, logger)
        failures = FailureLog("An erasure could not go on", recovery: "Erasures go on", logger: logger)
    }

    func forget() async throws(StoreError) {
        do throws(StoreError) {
            for (project, id) in try await erasures.latest(after: forgotten.withLock { $0 }) {
                live.forgetRefusals(of: project)
                forgotten.withLock { $0 = max($0, id) }
            }
        } catch {
            // The next look finds them.
            _ = await isStoreThere()
            throw error
        }
    }

    /// A failure of one keeps no other one back. Whether anything waits is not known if that cannot be read: no failure of an erasure.
    func perform() async throws {
        var failure: StoreError?
        for erasure in try await erasures.open() {
            do {
                guard let done = try await erasures.perform(erasure) else { continue }
                logger.notice(
                    erasure.isOfProject ? "A project was removed" : "A user was erased",
                    metadata: ["erasure": "\(done.id)", "events": "\(done.rows)"])
            } catch StoreError.notPermitted {
                // A server with the admin role does it, or the command.
            } catch let error as StoreError {
                failure = error
            }
        }
        guard let failure else { return failures.succeeded() }
        if await isStoreThere() { failures.failed(failure) }
    }
}
