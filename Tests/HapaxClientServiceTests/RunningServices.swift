import Logging
import ServiceLifecycle

/// Runs the services until the body has ended, then shuts them down gracefully.
func running(_ services: any Service..., body: @Sendable @escaping (ServiceGroup) async throws -> Void) async throws {
    let group = ServiceGroup(services: services, logger: Logger(label: "group") { _ in SwiftLogNoOpLogHandler() })
    try await withThrowingTaskGroup(of: Void.self) { tasks in
        tasks.addTask { try await group.run() }
        try await body(group)
        await group.triggerGracefulShutdown()
        try await tasks.waitForAll()
    }
}
