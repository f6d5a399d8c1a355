import HapaxModel
import Logging
import ServiceLifecycle

/// Performs erasures and removals that were asked for over HTTP, or that were interrupted, and forgets what this server remembers of such a user.
struct ErasureService: Service {
    let erasures: Erasures
    let live: Live
    /// Whether the store answers: an outage is reported once, by ``StoreWatch``.
    let isStoreThere: @Sendable () async -> Bool
    let failures: FailureLog
    let logger: Logger

    func run() async throws {
        try? await cancelWhenGracefulShutdown {
            try await withThrowingDiscardingTaskGroup { group in
                group.addTask { try await forget() }
                group.addTask { try await perform() }
            }
        }
    }

    private func forget() async throws {
        var known: Int32 = 0
        while true {
            do throws(StoreError) {
                for (project, id) in try await erasures.latest(after: known) {
                    live.forgetRefusals(of: project)
                    known = max(known, id)
                }
            } catch {
                // The next look finds them.
                _ = await isStoreThere()
            }
            try await Task.sleep(for: ServerLimits.settingsInterval)
        }
    }

    private func perform() async throws {
        while true {
            try await Task.sleep(for: ServerLimits.settingsInterval)
            let open: [Erasures.Erasure]
            // Whether anything waits is not known: that is no failure of an erasure.
            do throws(StoreError) { open = try await erasures.open() } catch { continue }
            var failure: StoreError?
            for erasure in open {
                do {
                    guard let done = try await erasures.perform(erasure) else { continue }
                    logger.notice(
                        erasure.isOfProject ? "A project was removed" : "A user was erased",
                        metadata: ["erasure": "\(done.id)", "events": "\(done.rows)"])
                } catch StoreError.notPermitted {
                    // A server with the admin role does it, or the command.
                } catch let error as StoreError {
                    // Those after it go on.
                    failure = error
                }
            }
            guard let failure else {
                failures.succeeded()
                continue
            }
            if await isStoreThere() { failures.failed(failure) }
        }
    }
}
