import Foundation
import HTTPTypes
import HapaxModel
import Hummingbird

/// The paths that other vendors' SDKs send to: their events become ours (``SenderBody``), are stored like all others, and the answer is one that the SDK
/// understands (docs/senders.md).
@available(macOS 14, *)
struct SenderRoutes: Sendable {
    let ingest: IngestRoute
    let currentTime: @Sendable () -> Int64

    /// - Parameter type: Of events that do not say their own, as the path has it.
    func respond(to request: Request, _ context: IngestContext, _ format: SenderFormat, type: String) async throws(RequestProblem)
        -> Response
    {
        do throws(RequestProblem) { return try await answer(request, context, format, type: type) } catch {
            let isUnknown = error.code == .unknownKey
            var problem = isUnknown ? RequestProblem(.unknownKey, detail: "\(error.detail). \(Self.places)") : error
            problem.isForSender = true
            problem.retryAfter = problem.retryAfter ?? format.retryAfter
            throw problem
        }
    }

    private func answer(_ request: Request, _ context: IngestContext, _ format: SenderFormat, type: String) async throws(RequestProblem)
        -> Response
    {
        let parameters = try QueryParameters(request.uri.query, known: [format.keyParameter], ignoresOthers: true)
        let addresses = [context.parameters.get("key").map { $0.removingPercentEncoding ?? $0 }, parameters.text(format.keyParameter)]
        let (sender, arrival) = (try ingest.sender(request, inAddress: addresses.compactMap(\.self)), currentTime())
        let source = { (bytes: [UInt8]) in
            SenderBody(bytes, format, type: type, sender.isServer ? .secret : .public, arrival: arrival)
        }
        if try ingest.isDryRun(request) { return try await ingest.dryRun(request, context, sender, comparesDerived: true, source) }
        let (ingested, outcome, _) = try await ingest.store(request, context, sender, comparesDerived: true) { source }
        let counts = Dictionary(grouping: outcome.results, by: \.outcome).mapValues(\.count)
        // The SDK cannot send one event again: of the whole request, what was stored is a duplicate then.
        if let again = counts[.retry], again > 0 {
            throw RequestProblem(.overloaded, detail: "\(again) events are to be sent again")
        }
        return Routes.response("application/json", Self.success(outcome, counts, hint: ingested.hint, now: arrival))
    }

    private static let places =
        "It is read in Authorization (Basic, as name or password, or Bearer), in front of the path (/k/KEY/...) and in the query, not in the body"

    /// One answer for the SDKs of all families: each reads another part of it. Success means that every event is accounted for; what was refused for good
    /// is listed here, under `/v1/refusals` and on the page.
    private static func success(_ outcome: IngestOutcome, _ counts: [Receipt.Outcome: Int], hint: String?, now: Int64) -> [UInt8] {
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("status", 1)
            writer.member("code", 200)
            writer.member("success", true)
            writer.member("error", String?.none)
            writer.member("events_ingested", outcome.received)
            writer.member("server_upload_time", now)
            writer.member("received", outcome.received)
            writer.member("stored", outcome.stored)
            writer.member("duplicates", counts[.duplicate] ?? 0)
            writer.member("rejected", counts[.rejected] ?? 0)
            writer.member("conflicts", counts[.conflict] ?? 0)
            writer.member("expired", counts[.expired] ?? 0)
            writer.member("outcomes", list: outcome.results.filter { $0.outcome != .duplicate }) { writer, result in
                writer.object { writer in
                    writer.member("index", result.index)
                    writer.member("event_id", result.eventID)
                    writer.member("outcome", result.outcome.rawValue)
                    writer.member("reason", result.reason)
                    writer.member("detail", result.detail)
                }
            }
            if let hint { writer.member("hint", hint) }
        }
        return writer.bytes
    }
}
