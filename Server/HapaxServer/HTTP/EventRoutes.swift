import HTTPTypes
import HapaxModel
import Hummingbird
import Logging

/// Every path that the server answers.
@available(macOS 14, *)
package struct EventRoutes: HTTPResponder {
    package typealias Context = BasicRequestContext

    private let keys: WriteKeys
    private let writer: GroupCommitWriter
    private let readinessProbe: ReadinessProbe
    private let permits: BodyPermits
    private let metrics: ServerMetrics
    private let logger: Logger

    package init(
        keys: WriteKeys, writer: GroupCommitWriter, store: any EventStore, metrics: ServerMetrics, maximumBodyBytes: Int,
        logger: Logger
    ) {
        self.keys = keys
        self.writer = writer
        readinessProbe = ReadinessProbe(store: store)
        permits = BodyPermits(limit: maximumBodyBytes)
        self.metrics = metrics
        self.logger = logger
    }

    package func respond(to request: Request, context: Context) async throws -> Response {
        let requestID = RequestID.make()
        var response: Response
        do throws(RequestProblem) {
            response = try await respond(to: request, requestID)
        } catch {
            response = refusal(error, requestID)
        }
        response.headers[RequestID.field] = requestID
        if request.method == .head, let length = response.body.contentLength {
            // The length that GET would have, and no body (RFC 9110 §9.3.2).
            response.body = ResponseBody(contentLength: length) { writer in try await writer.finish(nil) }
        }
        return response
    }

    private static let reading: [HTTPRequest.Method] = [.get, .head]

    private func respond(to request: Request, _ requestID: String) async throws(RequestProblem) -> Response {
        switch request.uri.path {
        case "/v1/events":
            guard request.method == .post else { return notAllowed([.post], requestID) }
            return try await takeEvents(request)
        case "/health/live":
            guard Self.reading.contains(request.method) else { return notAllowed(Self.reading, requestID) }
            return Self.response(.ok, "application/json", Array(#"{"status":"live"}"#.utf8))
        case "/health/ready":
            guard Self.reading.contains(request.method) else { return notAllowed(Self.reading, requestID) }
            return try await readiness()
        case "/metrics":
            guard Self.reading.contains(request.method) else { return notAllowed(Self.reading, requestID) }
            return Self.response(.ok, "text/plain; version=0.0.4", Array(metrics.exposition().utf8))
        default:
            throw RequestProblem(.notFound, detail: "events go to POST /v1/events")
        }
    }

    // MARK: - Events

    private func takeEvents(_ request: Request) async throws(RequestProblem) -> Response {
        guard let projectID = keys.projectID(authorization: request.headers[.authorization]) else {
            throw RequestProblem(.unknownKey, detail: "the header Authorization: Bearer must carry a known write key")
        }
        let isLines = try isLines(request)
        let expected = RequestBodyReader.expectedBytes(request)
        guard permits.take(expected) else {
            throw RequestProblem(.overloaded, detail: "too many bodies are being read")
        }
        defer { permits.giveBack(expected) }
        let bytes = try await RequestBodyReader.read(request)
        let body = try scan(bytes, isLines: isLines)
        let results: [Receipt.Result]
        let ingest = IngestRequest(body, projectID: projectID, bytes: bytes.count)
        if ingest.entries.isEmpty && ingest.report == nil {
            results = []
        } else {
            results = try await writer.submit(ingest)
        }
        metrics.answered(results)
        let unstored = results.filter { $0.outcome != .stored }
        let receipt = Receipt(
            batchID: body.envelope.batchID, received: results.count, stored: results.count - unstored.count, results: unstored)
        return Self.response(.ok, "application/json", receipt.encoded())
    }

    private func isLines(_ request: Request) throws(RequestProblem) -> Bool {
        let field = request.headers[.contentType] ?? ""
        let type = field.prefix { $0 != ";" }.lowercased().filter { $0 != " " }
        switch type {
        case "application/json": return false
        case "application/x-ndjson": return true
        default:
            throw RequestProblem(.unsupportedType, detail: "the content type must be application/json or application/x-ndjson")
        }
    }

    private func scan(_ bytes: [UInt8], isLines: Bool) throws(RequestProblem) -> ScannedBody {
        do throws(BodyProblem) {
            return isLines ? try ScannedBody(lines: bytes[...]) : try ScannedBody(json: bytes[...])
        } catch {
            throw RequestProblem(error.code, detail: error.detail)
        }
    }

    // MARK: - Health

    private func readiness() async throws(RequestProblem) -> Response {
        guard await readinessProbe.isReady() else {
            throw RequestProblem(.storeUnavailable, detail: "the store does not answer")
        }
        return Self.response(.ok, "application/json", Array(#"{"status":"ready"}"#.utf8))
    }

    // MARK: - Answers

    private func notAllowed(_ allowed: [HTTPRequest.Method], _ requestID: String) -> Response {
        let list = allowed.map(\.rawValue).joined(separator: ", ")
        var response = refusal(RequestProblem(.methodNotAllowed, detail: "allowed here: \(list)"), requestID)
        response.headers[.allow] = list
        return response
    }

    /// How long a refused sender should wait, in seconds: long enough to help, short enough for the queue to drain soon after.
    private static let retryAfterSeconds = 1

    private func refusal(_ problem: RequestProblem, _ requestID: String) -> Response {
        metrics.refused(problem.code)
        var response = Self.response(
            .init(code: problem.code.status), RequestProblem.contentType, problem.encoded(requestID: requestID))
        switch problem.code.status {
        case 401: response.headers[.wwwAuthenticate] = "Bearer"
        case 503: response.headers[.retryAfter] = "\(Self.retryAfterSeconds)"
        default: break
        }
        logger.debug("Refused a request", metadata: ["request.id": "\(requestID)", "problem.code": "\(problem.code.rawValue)"])
        return response
    }

    private static func response(_ status: HTTPResponse.Status, _ type: String, _ body: [UInt8]) -> Response {
        Response(status: status, headers: [.contentType: type], body: ResponseBody(byteBuffer: ByteBuffer(bytes: body)))
    }
}
