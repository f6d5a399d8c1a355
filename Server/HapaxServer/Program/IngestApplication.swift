import HapaxModel
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import ServiceLifecycle

/// The server: routes, group commit, live view and upkeep around one store.
@available(macOS 14, *)
package struct IngestApplication: Service {
    private let store: any EventStore
    private let keys: StaticKeys
    private let zones: [Int32: ReportZone]
    private let options: ServerOptions
    private let currentTime: @Sendable () -> Int64
    private let onListening: @Sendable (_ port: Int) async -> Void
    private let onMetricsListening: @Sendable (_ port: Int) async -> Void
    private let logger: Logger

    /// - Parameters:
    ///   - zones: The name of each project's time zone by its number. A project without a known name keeps its stored zone, at first UTC.
    ///   - currentTime: The wall clock in Unix milliseconds.
    ///   - onListening: Called once, with the port, when connections are accepted.
    ///   - onMetricsListening: The same for the listener for metrics, if there is one.
    package init(
        store: any EventStore, keys: StaticKeys, zones: [Int32: String] = [:], options: ServerOptions = ServerOptions(),
        currentTime: @escaping @Sendable () -> Int64,
        logger: Logger, onListening: @escaping @Sendable (_ port: Int) async -> Void = { _ in },
        onMetricsListening: @escaping @Sendable (_ port: Int) async -> Void = { _ in }
    ) {
        self.store = store
        self.keys = keys
        self.zones = zones.compactMapValues { ReportZone($0) }
        self.options = options
        self.currentTime = currentTime
        self.onListening = onListening
        self.onMetricsListening = onMetricsListening
        self.logger = logger
    }

    /// Serves until graceful shutdown. Then it accepts no new connection, finishes requests in flight, commits the last group and closes the
    /// store.
    package func run() async throws {
        let certificate: Certificate?
        do { certificate = try options.certificate.map { try Certificate($0) } } catch {
            await store.close()
            throw error
        }
        let registry = Registry(database: store.sql)
        let access = Keys(keys, registry: registry, currentTime: currentTime)
        do {
            if let problem = keys.contradiction(to: try await registry.contents()) { throw ServerConfiguration.Problem(problem) }
            try await access.refresh()
        } catch {
            await store.close()
            throw error
        }
        if access.isEmpty { logger.warning("Every request is answered 503: \(Keys.firstKey)") }
        let settings = Admin.Settings(
            projects: Set(keys.projects.keys), zones: Set(keys.projects.filter { zones[$0.value] != nil }.keys),
            keys: Set(keys.holders.keys))
        let admin = AdminRoutes(
            keys: access, store: store, settings: settings, fixed: keys,
            failures: FailureLog("Keys could not be read or changed", recovery: "Keys can be read and changed again", logger: logger),
            currentTime: currentTime)
        let metrics = ServerMetrics()
        let writer = GroupCommitWriter(store: store, metrics: metrics, heldBytes: options.limits.heldBytes, logger: logger)
        let live = Live(currentTime: currentTime)
        let senders = SenderDays(store.sql, currentTime: currentTime)
        let connections = Connections(limits: options.limits)
        let readiness = ReadinessProbe(store: store)
        let watch = StoreWatch(store: store, readiness: readiness, logger: logger)
        let isStoreThere: @Sendable () async -> Bool = { await watch.look() }
        let log = AccessLog(logger: logger, proxies: options.proxies) { access.projectName($0) }
        let routes = Routes(
            keys: access, admin: admin, writer: writer, store: store, live: live, senders: senders, zones: zones, limits: options.limits,
            proxies: options.proxies,
            metrics: metrics, watch: watch, readiness: readiness, connections: connections, certificate: certificate, logger: logger,
            currentTime: currentTime)
        var listeners: [any Service] = []
        if let (host, port) = options.metrics {
            var limits = options.limits
            limits.connections = ServerLimits.metricsConnections
            limits.answer = ServerLimits.metricsAnswer
            listeners.append(
                Self.listener(
                    Routes(page: routes.page, readiness: readiness).responder(metrics, log), host, port, Connections(limits: limits),
                    metrics,
                    logger, onListening: onMetricsListening))
        }
        let closing = ReportService(closing: DayClosing(database: store.sql, zones: zones), isStoreThere: isStoreThere, logger: logger)
        let erasures = ErasureService(erasures: Erasures(database: store.sql), live: live, isStoreThere: isStoreThere, logger: logger)
        let retention = RetentionService(retention: Retention(database: store.sql), isStoreThere: isStoreThere, logger: logger)
        let upkeep = Upkeep(store: store, metrics: metrics, currentTime: currentTime, logger: logger)
        var periodic: [any Service] = [
            Periodic(every: ServerLimits.watchInterval) { _ = await watch.look() },
            Periodic(every: ServerLimits.figuresInterval, afterFailure: ServerLimits.watchInterval) { try await watch.readFigures() },
            Periodic(every: ServerLimits.reportInterval) { await closing.closeDays() },
            // While the store does not answer, keys go on as they are; what the store refuses is reported by others.
            Periodic(every: ServerLimits.settingsInterval, beginsAtOnce: false) { try await access.refresh() },
            Periodic(every: ServerLimits.settingsInterval) { try await erasures.forget() },
            Periodic(every: ServerLimits.settingsInterval, beginsAtOnce: false) { try await erasures.perform() },
            Periodic(every: ServerLimits.upkeepInterval, afterFailure: ServerLimits.upkeepIntervalAfterFailure) {
                try await retention.advance()
            },
            Periodic(every: ServerLimits.settingsInterval, afterFailure: ServerLimits.upkeepIntervalAfterFailure) {
                try await retention.remove()
            },
            Periodic(every: ServerLimits.upkeepInterval, afterFailure: ServerLimits.upkeepIntervalAfterFailure) {
                try await upkeep.perform()
            },
            Periodic(every: ServerLimits.settingsInterval, beginsAtOnce: false) { try await senders.write() },
            // What other servers have changed. While the store does not answer, requests are refused and logged.
            Periodic(every: ServerLimits.refreshInterval, beginsAtOnce: false) { [store] in try await store.refresh() },
        ]
        if let certificate {
            let service = CertificateService(certificate: certificate, currentTime: currentTime, logger: logger)
            periodic += [service, Periodic(every: ServerLimits.certificateInterval, beginsAtOnce: false) { service.look() }]
        }
        let application = Self.listener(
            routes.responder(metrics, log), options.host, options.port, connections, metrics, certificate: certificate,
            isOrigin: { access.isOrigin($0) }, logger,
            // Shut down in reverse order: the server first, so that the writers end when nothing can arrive any more.
            services: listeners + periodic + [GroupCommitService(writer: writer)],
            onListening: onListening)
        do {
            // This handler runs before the server tells its connections to stop.
            try await withGracefulShutdownHandler {
                try await application.run()
            } onGracefulShutdown: {
                connections.stop()
                live.stop()
            }
        } catch {
            await store.close()
            throw error
        }
        // Where the store does not answer, the last seconds' counts are lost.
        try? await senders.write()
        await store.close()
    }

    /// A port, with all that its connections are held to.
    private static func listener(
        _ responder: some HTTPResponder<IngestContext>, _ host: String, _ port: Int, _ connections: Connections, _ metrics: ServerMetrics,
        certificate: Certificate? = nil, isOrigin: @escaping @Sendable (String) -> Bool = { _ in false }, _ logger: Logger,
        services: [any Service] = [],
        onListening: @escaping @Sendable (_ port: Int) async -> Void
    ) -> some ApplicationProtocol {
        Application(
            responder: responder,
            server: HTTPServerBuilder { responder in
                let channel = HTTP1Channel(
                    responder: responder,
                    configuration: .init(
                        additionalChannelHandlers: [ConnectionHandler(connections: connections, metrics: metrics, isOrigin: isOrigin)],
                        httpDecoderConfiguration: .init(
                            maxHeaderFieldSize: ServerLimits.headerBytes, maxHeaderListSize: ServerLimits.headerBytes,
                            maxHeaderFieldCount: ServerLimits.headerFields)))
                return certificate.map { SecureChannel(base: channel, certificate: $0) } ?? channel
            },
            configuration: ApplicationConfiguration(
                address: .hostname(host, port: port), serverName: nil, backlog: ServerLimits.backlog),
            services: services,
            onServerRunning: { channel in
                try? await channel.eventLoop.submit {
                    try channel.pipeline.syncOperations.addHandler(AcceptPause(connections: connections), position: .first)
                }.get()
                await onListening(channel.localAddress?.port ?? port)
            },
            logger: logger)
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
