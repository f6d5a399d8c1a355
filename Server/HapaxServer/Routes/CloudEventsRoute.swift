import Foundation
import HTTPTypes
import HapaxModel
import Hummingbird

/// `POST /v1/cloudevents`: one event, in the body or with its attributes in the head, or a batch of them
/// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md).
@available(macOS 14, *)
struct CloudEventsRoute: Sendable {
    let ingest: IngestRoute
    let currentTime: @Sendable () -> Int64

    private static let format = SenderFormat.cloudEvents

    func respond(to request: Request, _ context: IngestContext) async throws(RequestProblem) -> Response {
        do throws(RequestProblem) { return try await answer(request, context) } catch {
            var problem = ingest.noted(error, via: Self.format)
            if problem.detail == KeyTable.noKnownKey.detail { problem = Self.noKnownKey }
            problem.isForSender = true
            problem.retryAfter = problem.retryAfter ?? Self.format.retryAfter
            throw problem
        }
    }

    private func answer(_ request: Request, _ context: IngestContext) async throws(RequestProblem) -> Response {
        let address = context.parameters.get("key").map { $0.removingPercentEncoding ?? $0 }
        // A parameter that brokers can be given (http-webhook.md §3.2).
        let token = SenderForm.text("access_token", in: Array((request.uri.query ?? "").utf8))
        let sender = try ingest.keys.sender(request.headers[.authorization], inAddress: [address, token].compactMap(\.self))
        try ingest.checkPage(of: request, sender, via: Self.format)
        let (mode, arrival) = (try mode(of: request), currentTime())
        let attributes = try attributes(of: request)
        func prepare() async throws(RequestProblem) -> IngestRoute.Prepared<SenderBody> {
            (
                try await RequestBodyReader.read(request),
                { body in
                    let events = mode == .binary ? CloudEvent.object(attributes, type: request.headers[.contentType], data: body) : body
                    return SenderBody(events, Self.format, type: "", sender.isServer ? .secret : .public, arrival: arrival)
                }
            )
        }
        if try ingest.isDryRun(request) { return try await ingest.dryRun(try await prepare(), context, sender, via: Self.format) }
        let (ingested, outcome, _) = try await ingest.commit(request, context, sender, via: Self.format, prepare)
        // What reads only the status would take the event for stored.
        if outcome.results.contains(where: { $0.outcome == .retry }) {
            throw RequestProblem(.overloaded, detail: "some of the events are to be sent again")
        }
        guard mode == .batch || outcome.received != 1 else {
            if let result = outcome.results.first, result.outcome == .rejected {
                throw RequestProblem(.rejected, detail: [result.reason, result.detail].compactMap(\.self).joined(separator: ": "))
            }
            // Brokers take a body for an event that is sent back.
            return Response(status: .noContent)
        }
        let receipt = Receipt(
            batchID: nil, received: outcome.received, stored: outcome.stored, results: outcome.results, project: sender.publicID,
            hint: ingested.hint)
        return Routes.response("application/json", receipt.encoded())
    }

    private static let noKnownKey = RequestProblem(
        .unknownKey, detail: "no known key stands in Authorization (Bearer), the path (/k/KEY/...) or the query (access_token)")

    /// The answer to who asks whether it is wanted here, as brokers do before they send
    /// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/http-webhook.md#4-abuse-protection).
    static func consent(to request: Request) -> HTTPFields {
        guard request.headers[.webhookOrigin] != nil else { return [:] }
        return [.allow: "POST", .webhookAllowed: "*", .webhookRate: "*"]
    }

    private enum Mode { case structured, binary, batch }

    private func mode(of request: Request) throws(RequestProblem) -> Mode {
        let type = (request.headers[.contentType] ?? "").prefix { $0 != ";" && $0 != " " }.lowercased()
        switch type {
        case "application/cloudevents+json": return .structured
        case "application/cloudevents-batch+json": return .batch
        case _ where !type.hasPrefix("application/cloudevents") && request.headers.contains { $0.name.canonicalName == "ce-type" }:
            return .binary
        default:
            throw RequestProblem(
                .unsupportedType,
                detail:
                    "the content type must be application/cloudevents+json or application/cloudevents-batch+json, or the head has the attributes (ce-id, …)"
            )
        }
    }

    private func attributes(of request: Request) throws(RequestProblem) -> [(name: String, value: String)] {
        var attributes: [(name: String, value: String)] = []
        for field in request.headers where field.name.canonicalName.hasPrefix("ce-") {
            guard let value = CloudEvent.value(field.value) else {
                throw RequestProblem(.malformed, detail: "an attribute in the head is no UTF-8 in percent encoding")
            }
            attributes.append((String(field.name.canonicalName.dropFirst(3)), value))
        }
        return attributes
    }
}

extension HTTPField.Name {
    fileprivate static let webhookOrigin = HTTPField.Name("WebHook-Request-Origin") ?? .via
    fileprivate static let webhookAllowed = HTTPField.Name("WebHook-Allowed-Origin") ?? .via
    fileprivate static let webhookRate = HTTPField.Name("WebHook-Allowed-Rate") ?? .via
}
