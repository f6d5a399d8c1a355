import HTTPTypes
import HapaxModel
import Hummingbird

/// `POST /v1/events`: a body in, a receipt out, after COMMIT.
@available(macOS 14, *)
struct IngestRoute: Sendable {
    let keys: Keys
    let writer: GroupCommitWriter
    let metrics: ServerMetrics

    func respond(to request: Request) async throws(RequestProblem) -> Response {
        let projectID = try keys.writer(request.headers[.authorization])
        let isLines = try isLines(request)
        let ingest: IngestRequest
        let batchID: EventID?
        do {
            let body = try await RequestBodyReader.read(request, arrived: writer.checkRoom(for:))
            let scanned = try scan(body, isLines: isLines)
            ingest = IngestRequest(scanned, projectID: projectID, bytes: body.count)
            batchID = scanned.envelope.batchID
        }
        let results = ingest.isEmpty ? [] : try await writer.submit(ingest)
        metrics.answered(results)
        let unstored = results.filter { $0.outcome != .stored }
        let receipt = Receipt(batchID: batchID, received: results.count, stored: results.count - unstored.count, results: unstored)
        return Routes.response("application/json", receipt.encoded())
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
