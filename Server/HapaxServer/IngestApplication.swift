import HapaxModel
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import ServiceLifecycle

/// The ingest server: routes, group commit and upkeep around one store.
@available(macOS 14, *)
package struct IngestApplication: Service {
    private let store: any EventStore
    private let keys: WriteKeys
    private let options: ServerOptions
    private let onListening: @Sendable (_ port: Int) async -> Void
    private let logger: Logger

    /// Bytes of a request's header block; a larger one is refused and its connection closed.
    private static let maximumHeaderBytes = 16 * 1024

    /// - Parameter onListening: Called once, with the port, when connections are accepted.
    package init(
        store: any EventStore, keys: WriteKeys, options: ServerOptions = ServerOptions(), logger: Logger,
        onListening: @escaping @Sendable (_ port: Int) async -> Void = { _ in }
    ) {
        self.store = store
        self.keys = keys
        self.options = options
        self.onListening = onListening
        self.logger = logger
    }

    /// Serves until graceful shutdown: then no new connection, requests in flight finished, the last group committed, the store closed.
    package func run() async throws {
        let metrics = ServerMetrics()
        let writer = GroupCommitWriter(
            store: store, metrics: metrics, maximumWaitingBytes: options.maximumWaitingBytes, logger: logger)
        let routes = EventRoutes(
            keys: keys, writer: writer, store: store, metrics: metrics, maximumBodyBytes: options.maximumWaitingBytes,
            logger: logger)
        let deadlines = options.deadlines
        let isStopping = Locked(false)
        let application = Application(
            responder: routes,
            server: .http1(
                configuration: .init(
                    additionalChannelHandlers: [RequestDeadlines(limits: deadlines) { isStopping.withLock { $0 } }],
                    httpDecoderConfiguration: .init(
                        maxHeaderFieldSize: Self.maximumHeaderBytes, maxHeaderListSize: Self.maximumHeaderBytes,
                        maxHeaderFieldCount: 100))),
            configuration: ApplicationConfiguration(
                address: .hostname(options.host, port: options.port), serverName: nil, backlog: 1_024,
                availableConnectionsDelegate: MaximumAvailableConnections(options.maximumConnections)),
            // Shut down in reverse order: the server first, so that the writers end when nothing can arrive any more.
            services: [UpkeepService(store: store, logger: logger), GroupCommitService(writer: writer)],
            onServerRunning: { [onListening, options] channel in
                await onListening(channel.localAddress?.port ?? options.port)
            },
            logger: logger)
        do {
            // Before the server tells its connections.
            try await withGracefulShutdownHandler {
                try await application.run()
            } onGracefulShutdown: {
                isStopping.withLock { $0 = true }
            }
        } catch {
            await store.close()
            throw error
        }
        await store.close()
    }
}

/// Runs the writers; they end when nothing can arrive any more and the last group is committed.
private struct GroupCommitService: Service {
    let writer: GroupCommitWriter

    func run() async throws {
        await withTaskCancellationOrGracefulShutdownHandler {
            await writer.run()
        } onCancelOrGracefulShutdown: {
            writer.stop()
        }
    }
}

/// Prepares the store for the days to come, daily; when that fails, soon again.
private struct UpkeepService: Service {
    let store: any EventStore
    let logger: Logger

    private static let interval = Duration.seconds(24 * 60 * 60)
    private static let intervalAfterFailure = Duration.seconds(10 * 60)

    func run() async throws {
        try? await cancelWhenGracefulShutdown {
            var interval = store.needsUpkeep ? Self.intervalAfterFailure : Self.interval
            while true {
                try await Task.sleep(for: interval)
                do throws(StoreError) {
                    try await store.performUpkeep()
                    interval = Self.interval
                } catch {
                    // The open partition takes what comes meanwhile.
                    logger.error("Upkeep failed", metadata: ["store.error": "\(error)"])
                    interval = Self.intervalAfterFailure
                }
            }
        }
    }
}
