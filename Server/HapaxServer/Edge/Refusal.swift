import HTTPTypes
import HapaxModel
import Hummingbird
import Logging
import NIOCore

@available(macOS 14, *)
extension RequestProblem {
    /// The header field with the request's id, by which it is found in the log.
    static let requestIDField = HTTPField.Name("X-Request-Id") ?? .server

    /// The whole answer: an `application/problem+json` document (RFC 9457), or what another vendor's SDK reads.
    func response(requestID: String) -> (head: HTTPResponse, body: ByteBuffer) {
        let body = ByteBuffer(bytes: encoded(requestID: requestID))
        var head = HTTPResponse(
            status: .init(code: status),
            headerFields: [
                .contentType: isForSender ? "application/json" : Self.contentType, .contentLength: "\(body.readableBytes)",
                Self.requestIDField: requestID,
            ])
        switch status {
        case 401: head.headerFields[.wwwAuthenticate] = "Bearer"
        case 429, 503: head.headerFields[.retryAfter] = "\(retryAfter ?? ServerLimits.retryAfterSeconds)"
        default: break
        }
        return (head, body)
    }
}

/// Turns whatever the routes throw into a refusal, counts it, and names each request.
@available(macOS 14, *)
struct RefusalMiddleware: RouterMiddleware {
    typealias Context = IngestContext

    let metrics: ServerMetrics
    let log: AccessLog
    /// See ``HostCheck``.
    let checksHost: Bool
    /// The methods of each path; a segment in braces stands for any.
    let methods: [String: [HTTPRequest.Method]]

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        let began = ContinuousClock.now
        var (request, response) = (request, Response(status: .internalServerError))
        var (problem, allowed): (RequestProblem?, String?)
        if request.headers[.expect]?.lowercased() == "100-continue" {
            request.body = RequestBody(asyncSequence: ExpectedBody(base: request.body, channel: context.channel))
        }
        do {
            if checksHost { try HostCheck.check(request.head.authority) }
            response = try await next(request, context)
        } catch let refusal as RequestProblem {
            problem = refusal
        } catch let error as HTTPError where error.status == .notFound {
            // Longer than any pattern at most: a path of slashes is not taken apart for each of them.
            let path = request.uri.path.split(separator: "/", maxSplits: 8)
            allowed = methods.first { Self.matches($0.key, path) }?.value.map(\.rawValue).joined(separator: ", ")
            problem =
                allowed.map { RequestProblem(.methodNotAllowed, detail: "allowed here: \($0)") }
                ?? RequestProblem(
                    .notFound, detail: "events go to POST /v1/events, other SDKs' to the paths of docs/senders.md; the page is at /")
            if allowed == nil, SenderFormat.isNearlyPath(request.uri.path[...]) {
                problem = RequestProblem(.notFound, detail: "there is nothing at this path: set the SDK's host without a path of its own")
                problem?.isForSender = true
            } else if SenderFormat.isPath(request.uri.path[...]) {
                problem?.isForSender = true
            }
        } catch {
            // The error's type only: its description may hold what was sent (I14).
            context.logger.error("A request could not be answered", metadata: ["error.type": "\(type(of: error))"])
            problem = RequestProblem(.internalError, detail: "the server failed; whether a batch was stored is not known")
        }
        if let problem {
            metrics.refused(problem.code)
            let (head, body) = problem.response(requestID: context.requestID)
            response = Response(status: head.status, headers: head.headerFields, body: ResponseBody(byteBuffer: body))
            response.headers[.allow] = allowed
        }
        let duration = ContinuousClock.now - began
        metrics.answered(context.endpointPath.map { "\(request.method.rawValue) \($0)" }, after: duration)
        log.answered(request, context, response.status, problem, after: duration)
        response.headers[RequestProblem.requestIDField] = context.requestID
        response.body = response.body.paced(by: context.channel)
        // The length that GET would have, and no body (RFC 9110 §9.3.2).
        return request.method == .head && response.body.contentLength != nil ? response.createHeadResponse() : response
    }

    private static func matches(_ pattern: String, _ path: [Substring]) -> Bool {
        let pattern = pattern.split(separator: "/")
        return pattern.count == path.count && zip(pattern, path).allSatisfy { $0 == $1 || $0.hasPrefix("{") }
    }
}
