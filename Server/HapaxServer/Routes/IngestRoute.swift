import HTTPTypes
import HapaxModel
import Hummingbird

/// `POST /v1/events`: a body in, a receipt out, after COMMIT. With `?dry_run=true` nothing is stored: what would become of each event.
@available(macOS 14, *)
struct IngestRoute: Sendable {
    let keys: Keys
    let store: any EventStore
    let writer: GroupCommitWriter
    let metrics: ServerMetrics
    let live: Live

    func respond(to request: Request) async throws(RequestProblem) -> Response {
        let projectID: Int32
        do throws(RequestProblem) {
            projectID = try keys.writer(request.headers[.authorization])
        } catch {
            if error.code == .unknownKey { live.keyWasUnknown() }
            throw error
        }
        do throws(RequestProblem) {
            return try await respond(to: request, of: projectID)
        } catch {
            live.refused(projectID, error)
            throw error
        }
    }

    private func respond(to request: Request, of projectID: Int32) async throws(RequestProblem) -> Response {
        let parameters = try QueryParameters(request.uri.query, known: ["dry_run"], ignoresOthers: true)
        let isDryRun = try parameters.parse("dry_run", "must be true; without it events are stored") { $0 == "true" ? true : nil } ?? false
        let isLines = try isLines(request)
        let ingest: IngestRequest
        let batchID: EventID?
        do {
            let body = try await RequestBodyReader.read(request, arrived: writer.checkRoom(for:))
            let scanned = try scan(body, isLines: isLines)
            ingest = IngestRequest(scanned, projectID: projectID, bytes: body.count)
            batchID = scanned.envelope.batchID
        }
        if isDryRun { return ReadRoutes.json(try await verdicts(on: ingest)) }
        let results = ingest.isEmpty ? [] : try await writer.submit(ingest)
        metrics.answered(results)
        live.answered(ingest, results)
        let unstored = results.filter { $0.outcome != .stored }
        let receipt = Receipt(batchID: batchID, received: results.count, stored: results.count - unstored.count, results: unstored)
        return Routes.response("application/json", receipt.encoded())
    }

    /// What would become of each event if the store stays as it is. What only the database itself refuses is not foreseen.
    private func verdicts(on request: IngestRequest) async throws(RequestProblem) -> [UInt8] {
        let group = CommitGroup([request], horizon: store.horizon, moving: store.moving)
        let found: [EventKey: Int64]
        do throws(StoreError) {
            found = try await store.reader.fingerprints(group.storeGroup.records.map(\.key) + group.storeGroup.lookups)
        } catch {
            throw RequestProblem(.storeUnavailable, detail: "the store cannot be read now")
        }
        var writer = JSONWriter()
        writer.raw(#"{"dry_run":true,"would":"#)
        writer.list(group.outcomes(found: found, unstored: [:]).joined()) { writer, result in
            writer.raw(#"{"index":"#)
            writer.integer(result.index)
            writer.raw(#","event_id":"#)
            writer.optional(result.eventID)
            writer.raw(#","outcome":"#)
            writer.string(result.outcome.rawValue)
            writer.raw(#","reason":"#)
            writer.optional(result.reason)
            writer.raw(#","detail":"#)
            writer.optional(result.detail)
            writer.raw("}")
        }
        writer.raw("}")
        return writer.bytes
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
}
