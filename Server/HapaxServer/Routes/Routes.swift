import HTTPTypes
import HapaxModel
import Hummingbird
import Logging

/// Every path that the server answers.
@available(macOS 14, *)
struct Routes {
    typealias Handler = @Sendable (Request, IngestContext) async throws -> Response

    private var handlers: [(path: String, method: HTTPRequest.Method, handler: Handler)] = []

    private let checksHost: Bool
    let page: MetricsPage

    init(
        keys: Keys, admin: AdminRoutes, writer: GroupCommitWriter, store: any EventStore, live: Live, senders: SenderDays,
        zones: [Int32: ReportZone],
        limits: ServerLimits, proxies: TrustedProxies,
        metrics: ServerMetrics, watch: StoreWatch, readiness: ReadinessProbe, connections: Connections, certificate: Certificate?,
        logger: Logger, currentTime: @escaping @Sendable () -> Int64
    ) {
        checksHost = keys.holdsDemoKeys
        let failures = FailureLog("The store could not be read", recovery: "The store can be read again", logger: logger)
        let questions = Questions(keys: keys, store: store, limits: limits, failures: failures)
        let reading = ReadRoutes(questions: questions, live: live, senders: senders)
        let ingest = IngestRoute(
            keys: keys, store: store, writer: writer, metrics: metrics, live: live, senders: senders, questions: questions)
        let reports = ReportRoutes(
            questions: questions, database: store.sql, zones: zones, currentTime: currentTime)
        let export = ExportRoute(questions: questions)
        let stream = LiveRoute(questions: questions, live: live)
        page = MetricsPage(
            keys: keys, store: store, writer: writer, metrics: metrics, watch: watch, connections: connections,
            turns: [
                ("work", ingest.turns), ("dry_runs", ingest.dryRuns), ("questions", questions.turns), ("exports", export.turns),
                ("searches", admin.searches),
            ],
            answers: questions.answers, certificate: certificate, startedAt: currentTime())
        add("/v1/events", .post) { request, context in try await ingest.respond(to: request, context) }
        add("/v1/events", .options) { _, _ in Response(status: .noContent) }
        let others = SenderRoutes(ingest: ingest, proxies: proxies, currentTime: currentTime)
        let cloud = CloudEventsRoute(ingest: ingest, currentTime: currentTime)
        for format in SenderFormat.all {
            for (path, type) in format.paths {
                let answer: Handler = { request, context in
                    if format.answer == .receipt { return try await cloud.respond(to: request, context) }
                    return try await others.respond(to: request, context, format, type: type)
                }
                for place in [path, "\(SenderFormat.keyPrefix){key}\(path)"] {
                    add(place, .post, answer)
                    if format.pixels.contains(path) { add(place, .get, answer) }
                    add(place, .options) { request, _ in
                        Response(status: .noContent, headers: format.answer == .receipt ? CloudEventsRoute.consent(to: request) : [:])
                    }
                }
            }
        }
        let settings = SettingsRoute(ingest: ingest, isSecure: certificate != nil)
        for asked in SenderSettings.allCases {
            add(asked.path, asked.isPost ? .post : .get) { request, context in try settings.respond(to: request, context, asked) }
            add(asked.path, .options) { _, _ in Response(status: .noContent) }
        }
        add("/v1/events", .get) { request, context in try await reading.events(request, context) }
        add("/v1/events/{id}", .get) { request, context in try await reading.event(request, id: context.parameters.get("id") ?? "") }
        add("/v1/key", .get) { request, _ in try reading.key(request) }
        add("/v1/names", .get) { request, context in try await reading.names(request, context) }
        add("/v1/users", .get) { request, context in try await reading.users(request, context) }
        add("/v1/senders", .get) { request, context in try await reading.senders(request, context) }
        add("/v1/refusals", .get) { request, _ in try reading.refusals(request) }
        add("/v1/reports/daily", .get) { request, context in try await reports.daily(request, context) }
        add("/v1/reports/series", .get) { request, context in try await reports.series(request, context) }
        add("/v1/reports/breakdown", .get) { request, context in try await reports.breakdown(request, context) }
        add("/v1/reports/funnel", .get) { request, context in try await reports.funnel(request, context) }
        add("/v1/reports/retention", .get) { request, context in try await reports.returns(request, context) }
        add("/hapax.js", .get) { request, _ in ScriptRoute.respond(to: request) }
        let trust = TrustRoutes(questions: questions)
        add("/v1/trust", .get) { request, context in try await trust.trust(request, context) }
        add("/v1/installs", .get) { request, context in try await trust.installs(request, context) }
        add("/v1/installs/{id}", .get) { request, context in
            try await trust.install(request, context, id: context.parameters.get("id") ?? "")
        }
        add("/v1/export", .get) { request, context in try await export.respond(to: request, context) }
        add("/v1/live", .get) { request, _ in try stream.respond(to: request) }
        add("/v1/admin/projects", .get) { request, _ in try await admin.projects(request) }
        add("/v1/admin/projects", .post) { request, _ in try await admin.addProject(request) }
        add("/v1/admin/projects/{name}", .patch) { request, context in
            try await admin.setProject(request, name: context.parameters.get("name") ?? "")
        }
        add("/v1/admin/projects/{name}/remove", .post) { request, context in
            try await admin.removeProject(request, name: context.parameters.get("name") ?? "")
        }
        add("/v1/admin/keys", .get) { request, _ in try await admin.keys(request) }
        add("/v1/admin/keys", .post) { request, _ in try await admin.addKey(request) }
        add("/v1/admin/keys/{id}", .patch) { request, context in
            try await admin.setKey(request, id: context.parameters.get("id") ?? "")
        }
        add("/v1/admin/keys/{id}", .delete) { request, context in
            try await admin.revokeKey(request, id: context.parameters.get("id") ?? "")
        }
        add("/v1/admin/keys/{id}/rotate", .post) { request, context in
            try await admin.rotateKey(request, id: context.parameters.get("id") ?? "")
        }
        add("/v1/admin/erasures", .get) { request, _ in try await admin.erasures(request) }
        add("/v1/admin/erasures", .post) { request, _ in try await admin.erase(request) }
        add("/v1/admin/unblock", .post) { request, _ in try await admin.unblock(request) }
        add("/v1/admin/losses/accept", .post) { request, _ in try await admin.acceptLosses(request) }
        add("/v1/admin/clock/accept", .post) { request, _ in try await admin.acceptClock(request) }
        add("/v1/admin/audit", .get) { request, _ in try await admin.audit(request) }
        add("/v1/admin/retention", .get) { request, _ in try await admin.retention(request) }
        add("/v1/admin/retention", .patch) { request, _ in try await admin.setRetention(request) }
        for file in PageRoute.files { add(file.path, .get) { _, _ in PageRoute.response(file.type, file.bytes) } }
        addHealth(readiness)
        let overview = StoreRoute(
            keys: keys, store: store, writer: writer, readiness: readiness, metrics: metrics, live: live, failures: failures)
        add("/v1/store", .get) { request, _ in try await overview.respond(to: request) }
        add("/metrics", .get) { [page] request, _ in
            try keys.checkAdminOfAll(request.headers[.authorization])
            return page.fresh()
        }
    }

    /// Those of the listener for metrics.
    init(page: MetricsPage, readiness: ReadinessProbe) {
        (checksHost, self.page) = (false, page)
        add("/metrics", .get) { _, _ in page.recent() }
        addHealth(readiness)
    }

    private mutating func addHealth(_ readiness: ReadinessProbe) {
        add("/health/live", .get) { _, _ in Self.response("application/json", Array(#"{"status":"live"}"#.utf8)) }
        add("/health/ready", .get) { _, _ in
            guard await readiness.isReady() else {
                throw RequestProblem(.storeUnavailable, detail: "the store does not answer, or is not as it must be")
            }
            return Self.response("application/json", Array(#"{"status":"ready"}"#.utf8))
        }
    }

    private mutating func add(_ path: String, _ method: HTTPRequest.Method, _ handler: @escaping Handler) {
        handlers.append((path, method, handler))
    }

    func responder(_ metrics: ServerMetrics, _ log: AccessLog) -> some HTTPResponder<IngestContext> {
        let router = Router(context: IngestContext.self)
        let methods = Dictionary(grouping: handlers, by: \.path).mapValues { handlers in
            handlers.flatMap { $0.method == .get ? [.get, .head] : [$0.method] }
        }
        router.add(middleware: RefusalMiddleware(metrics: metrics, log: log, checksHost: checksHost, methods: methods))
        for route in handlers {
            // HEAD has a handler, because the framework's own answer gives a length of 0 where GET gives none.
            for method in route.method == .get ? [.get, .head] : [route.method] {
                router.on(RouterPath(route.path), method: method, use: route.handler)
            }
        }
        return router.buildResponder()
    }

    static func response(_ type: String, _ body: [UInt8]) -> Response {
        Response(status: .ok, headers: [.contentType: type], body: ResponseBody(byteBuffer: ByteBuffer(bytes: body)))
    }
}

@available(macOS 14, *)
extension Response {
    /// The answer to HEAD where the length of GET's answer is not known beforehand (RFC 9110 §9.3.2).
    func withoutLength() -> Response {
        var response = self
        response.body = ResponseBody { writer in try await writer.finish(nil) }
        return response
    }
}

extension HTTPFields {
    /// Whether a list with weights (RFC 9110 §12.4.2) contains a value with a weight above 0.
    func takes(_ value: String, in field: HTTPField.Name) -> Bool {
        self[values: field].flatMap { $0.utf8.split(separator: UInt8(ascii: ",")) }.contains { element in
            // In small letters, one pass over the bytes.
            let parts = element.filter { $0 != 0x20 && $0 != 0x09 }.map { $0 | 0x20 }.split(separator: UInt8(ascii: ";"))
            return parts.first?.elementsEqual(value.utf8) == true
                && !parts.dropFirst().contains { $0.starts(with: "q=0".utf8) && $0.dropFirst(3).allSatisfy { ".0".utf8.contains($0) } }
        }
    }
}
