import ServiceLifecycle

/// Work that a server does again and again until it stops. A turn that fails is followed by others: what each of them has to do, it finds anew.
struct Periodic: Service {
    private let every: Duration
    private let afterFailure: Duration
    private let beginsAtOnce: Bool
    private let pause: @Sendable (Duration) async throws -> Void
    private let work: @Sendable () async throws -> Void

    /// - Parameters:
    ///   - every: The pause between two turns.
    ///   - afterFailure: The pause after a turn that has thrown; nil for the same. Who throws has said why, if anybody should know.
    ///   - beginsAtOnce: Whether the first turn comes before the first pause.
    init(
        every: Duration, afterFailure: Duration? = nil, beginsAtOnce: Bool = true,
        pause: @escaping @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) },
        _ work: @escaping @Sendable () async throws -> Void
    ) {
        (self.every, self.afterFailure, self.beginsAtOnce) = (every, afterFailure ?? every, beginsAtOnce)
        (self.pause, self.work) = (pause, work)
    }

    /// Ends with the server, or when a pause is ended.
    func run() async throws {
        try? await cancelWhenGracefulShutdown {
            if !beginsAtOnce { try await pause(every) }
            while !Task.isCancelled {
                var next = every
                do { try await work() } catch { next = afterFailure }
                try await pause(next)
            }
        }
    }
}
