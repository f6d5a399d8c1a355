import Foundation
import HTTPTypes
import HapaxModel
import Hummingbird

/// The paths that other vendors' SDKs send to: their events become ours (``SenderBody``), are stored like all others, and the answer is one that the SDK
/// understands (docs/senders.md).
@available(macOS 14, *)
struct SenderRoutes: Sendable {
    let ingest: IngestRoute
    let proxies: TrustedProxies
    let currentTime: @Sendable () -> Int64

    /// - Parameter type: Of events that do not say their own, as the path has it.
    func respond(to request: Request, _ context: IngestContext, _ format: SenderFormat, type: String) async throws(RequestProblem)
        -> Response
    {
        do throws(RequestProblem) {
            var response = try await answer(request, context, format, type: type)
            // An event in an address, which a cache would keep for itself.
            if request.method == .get { response.headers[.cacheControl] = "no-store" }
            return response
        } catch {
            var problem = ingest.noted(error, via: format)
            if problem.detail == KeyTable.noKnownKey.detail { problem = Self.noKnownKey }
            problem.isForSender = true
            if format.keepsAtForbidden, [401, 415].contains(problem.status) { problem.statusForSender = 403 }
            problem.retryAfter = problem.retryAfter ?? format.retryAfter
            throw problem
        }
    }

    private func answer(_ request: Request, _ context: IngestContext, _ format: SenderFormat, type: String) async throws(RequestProblem)
        -> Response
    {
        // Nobody who only looks at an address sends an event.
        if request.method == .head { throw RequestProblem(.methodNotAllowed, detail: "allowed here: GET, POST") }
        let query = Array((request.uri.query ?? "").utf8)
        let addresses =
            [context.parameters.get("key").map { $0.removingPercentEncoding ?? $0 }]
            + format.keyParameters.map { SenderForm.text($0, in: query) }
        let arrival = currentTime()
        let (sender, body) = try await self.sender(of: request, context, format, inAddress: addresses.compactMap(\.self))
        try ingest.checkPage(of: request, sender, via: format)
        var (answersOne, sentIDs) = (format.answer == .one && SenderForm.text("verbose", in: query) != "1", [String?]())
        func prepare() async throws(RequestProblem) -> IngestRoute.Prepared<SenderBody> {
            let body = if let body { body } else { try await Self.read(request, format) }
            // In a form it stands beside the events.
            if answersOne, SenderForm.field("verbose", in: body.bytes)?.elementsEqual("1".utf8) == true { answersOne = false }
            if !format.encrypted.isEmpty, let packing = SenderForm.text("gzip", in: body.bytes), format.encrypted.contains(packing) {
                throw RequestProblem(.unsupportedEncoding, detail: "the events are encrypted for the vendor's server")
            }
            return (
                body,
                {
                    if format.answer == .results { sentIDs = SenderBody.sentIDs(in: $0, format) }
                    return SenderBody($0, format, type: type, sender.isServer ? .secret : .public, arrival: arrival)
                }
            )
        }
        // An SDK that only tries says so in the head.
        if try ingest.isDryRun(request) || request.headers[.dryRun]?.lowercased() == "true" {
            return try await ingest.dryRun(try await prepare(), context, sender, via: format)
        }
        let (ingested, outcome, _) = try await ingest.commit(request, context, sender, via: format, prepare)
        if format.answer == .results { return Routes.response("application/json", Self.results(outcome, of: sentIDs)) }
        let counts = Dictionary(grouping: outcome.results, by: \.outcome).mapValues(\.count)
        // The SDK cannot send one event again: of the whole request, what was stored is a duplicate then.
        if let again = counts[.retry], again > 0 {
            throw RequestProblem(.overloaded, detail: "\(again) events are to be sent again")
        }
        if request.method == .get, request.headers[.accept]?.hasPrefix("image/") == true {
            return Routes.response("image/gif", Self.picture)
        }
        if answersOne { return Routes.response("text/plain", Array("1".utf8)) }
        return Routes.response("application/json", Self.success(outcome, counts, hint: ingested.hint, now: arrival))
    }

    /// One transparent pixel (https://www.w3.org/Graphics/GIF/spec-gif89a.txt).
    private static let picture =
        Array("GIF89a".utf8) + [1, 0, 1, 0, 0x80, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF]
        + [0x21, 0xF9, 4, 1, 0, 0, 0, 0, 0x2C, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0, 0x3B]

    private static func read(_ request: Request, _ format: SenderFormat) async throws(RequestProblem) -> RequestBodyReader.Body {
        guard request.method == .get else { return try await RequestBodyReader.readForeign(request) }
        let query = Array((request.uri.query ?? "").utf8)
        // What is ours there is no part of the event.
        let object = format.isEventInAddress ? SenderForm.object(query, without: format.keyParameters + ["verbose", "dry_run"]) : query
        return .init(bytes: object, isCompressed: false, isForeign: true)
    }

    private static let noKnownKey = RequestProblem(
        .unknownKey, detail: "no known key stands in Authorization (Basic or Bearer), the path (/k/KEY/...), the query or the body")

    /// Whose events a request brings: what the address and the header say counts more than the body.
    ///
    /// - Returns: Also the body, if it had to be read for that.
    private func sender(
        of request: Request, _ context: IngestContext, _ format: SenderFormat, inAddress addresses: [String]
    ) async throws(RequestProblem) -> (Keys.Sender, RequestBodyReader.Body?) {
        let refusal: RequestProblem
        do throws(RequestProblem) {
            return (try ingest.keys.sender(request.headers[.authorization], inAddress: addresses), nil)
        } catch {
            guard error.code == .unknownKey else { throw error }
            refusal = error
        }
        let body = try await Self.read(request, format)
        // An SDK that could not write its events is not told that its key is wrong.
        if body.bytes.isEmpty || body.bytes.elementsEqual("data=".utf8) { throw RequestProblem(.malformed, detail: "the body is empty") }
        // Whatever strangers send, they have so many turns among the projects, and so much memory. Those of one address share one.
        let client = proxies.client(of: context.channel.remoteAddress?.ipAddress, forwarded: request.headers[values: .forwardedFor])
        let stranger = -1 - Int32((client ?? "").utf8.reduce(UInt32(5_381)) { $0 &* 33 &+ UInt32($1) } % ServerLimits.strangers)
        let charge = try strangers.take(body.bytes.count, of: stranger)
        let key = try await ingest.turns.run(stranger) { _ throws(RequestProblem) in
            SenderBody.key(in: try RequestBodyReader.unpacked(body), format)
        }
        _ = charge
        let isInAddress = request.method == .get
        do throws(RequestProblem) { return (try ingest.keys.sender(key: key ?? "", isPublic: isInAddress), body) } catch {
            guard error.code == .unknownKey else { throw error }
            // The more exact reason counts: that the key has expired, or is mistyped.
            throw key == nil ? refusal : error
        }
    }

    /// Bodies that wait until their key has been looked for.
    private let strangers = Budget(
        limit: ServerLimits.strangersBytes, limitOfOne: ServerLimits.strangersBytes / 2, what: "bodies whose key stands in them")

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
            writer.member("num_records_imported", outcome.received)
            writer.member("server_upload_time", now)
            writer.member("received", outcome.received)
            writer.member("stored", outcome.stored)
            writer.member("duplicates", counts[.duplicate] ?? 0)
            writer.member("rejected", counts[.rejected] ?? 0)
            writer.member("conflicts", counts[.conflict] ?? 0)
            writer.member("expired", counts[.expired] ?? 0)
            writer.member("outcomes", results: outcome.results.filter { $0.outcome != .duplicate })
            if let hint { writer.member("hint", hint) }
        }
        return writer.bytes
    }

    /// What became of each event, by the id that it was sent with.
    private static func results(_ outcome: IngestOutcome, of ids: [String?]) -> [UInt8] {
        let others = Dictionary(outcome.results.map { ($0.index, $0) }, uniquingKeysWith: { $1 })
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("results") { writer in
                for (index, id) in ids.enumerated() {
                    guard let id else { continue }
                    writer.member(named: id)
                    writer.object { writer in
                        let result = others[index]
                        switch result?.outcome {
                        case nil, .stored, .duplicate: writer.member("result", "ok")
                        case .retry: writer.member("result", "retry")
                        case .rejected, .conflict, .expired: writer.member("result", "drop")
                        }
                        writer.member("details", result?.detail ?? result?.outcome.rawValue)
                    }
                }
            }
        }
        return writer.bytes
    }
}

extension HTTPField.Name {
    fileprivate static let dryRun = HTTPField.Name("Dry-Run") ?? .via
}
