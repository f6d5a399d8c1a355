import HapaxModel
import Logging
import ServiceLifecycle

/// Performs erasures and removals that were asked for over HTTP, or that were interrupted, and forgets what this server remembers of such a user.
struct ErasureService: Service {
    let erasures: Erasures
    let live: Live
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
            let new = ((try? await erasures.list(after: known)) ?? []).filter { $0.id > known }
            for erasure in new { live.forgetRefusals(of: erasure.projectID) }
            known = new.last?.id ?? known
            try await Task.sleep(for: ServerLimits.settingsInterval)
        }
    }

    private func perform() async throws {
        while true {
            try await Task.sleep(for: ServerLimits.settingsInterval)
            do {
                for erasure in try await erasures.list() where erasure.doneAt == nil {
                    guard let done = try await erasures.perform(erasure) else { continue }
                    logger.notice(
                        erasure.isOfProject ? "A project was removed" : "A user was erased",
                        metadata: ["erasure": "\(done.id)", "events": "\(done.rows)"])
                }
                failures.succeeded()
            } catch StoreError.notPermitted {
                // A server with the admin role does it, or the command.
            } catch let error as StoreError {
                failures.failed(error)
            }
        }
    }
}
