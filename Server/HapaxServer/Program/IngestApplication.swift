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
    private let keys: Keys
    private let options: ServerOptions
    private let onListening: @Sendable (_ port: Int) async -> Void
    private let logger: Logger

    /// - Parameter onListening: Called once, with the port, when connections are accepted.
    package init(
        store: any EventStore, keys: Keys, options: ServerOptions = ServerOptions(), logger: Logger,
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
        let writer = GroupCommitWriter(store: store, metrics: metrics, heldBytes: options.limits.heldBytes, logger: logger)
        let connections = Connections(limits: options.limits)
        let application = Application(
            responder: Routes(keys: keys, writer: writer, store: store, metrics: metrics).responder(metrics),
            server: .http1(
                configuration: .init(
                    additionalChannelHandlers: [ConnectionHandler(connections: connections, metrics: metrics)],
                    httpDecoderConfiguration: .init(
                        maxHeaderFieldSize: ServerLimits.headerBytes, maxHeaderListSize: ServerLimits.headerBytes,
                        maxHeaderFieldCount: ServerLimits.headerFields))),
            configuration: ApplicationConfiguration(
                address: .hostname(options.host, port: options.port), serverName: nil, backlog: ServerLimits.backlog),
            // Shut down in reverse order: the server first, so that the writers end when nothing can arrive any more.
            services: [UpkeepService(store: store, logger: logger), GroupCommitService(writer: writer)],
            onServerRunning: { [onListening, options] channel in
                try? await channel.eventLoop.submit {
                    try channel.pipeline.syncOperations.addHandler(AcceptPause(connections: connections), position: .first)
                }.get()
                await onListening(channel.localAddress?.port ?? options.port)
            },
            logger: logger)
        do {
            // Before the server tells its connections.
            try await withGracefulShutdownHandler {
                try await application.run()
            } onGracefulShutdown: {
                connections.stop()
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
