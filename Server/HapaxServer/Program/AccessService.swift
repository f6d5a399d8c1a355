import ServiceLifecycle

/// Reads every two seconds what has been changed about projects and keys.
struct AccessService: Service {
    let keys: Keys

    func run() async throws {
        try? await cancelWhenGracefulShutdown {
            while true {
                try await Task.sleep(for: ServerLimits.settingsInterval)
                // While the store does not answer, keys go on as they are; what the store refuses is reported by others.
                try? await keys.refresh()
            }
        }
    }
}
