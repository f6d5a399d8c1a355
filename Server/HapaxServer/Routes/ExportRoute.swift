import HTTPTypes
import HapaxModel
import Hummingbird
import ServiceLifecycle

/// `GET /v1/export`: everything of a project, oldest received first, one JSON object on each line.
///
/// It leaves out the newest few seconds, in which events can still appear, so that continuing later from its last line never skips an event.
@available(macOS 14, *)
struct ExportRoute: Sendable {
    let questions: Questions
    private let places = Budget(limit: ServerLimits.allExports, limitOfOne: ServerLimits.exports, what: "exports are under way")
    let turns = Turns.exports()

    init(questions: Questions) {
        self.questions = questions
    }

    func respond(to request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, holder) = try questions.accept(
            request, ["from", "to", "happened_from", "happened_to", "event", "distinct_id", "after"])
        let span = try parameters.span()
        let after = try await position(try parameters.id("after"), projectID)
        let store = questions.store
        let settled = try await questions.reading { () throws(StoreError) in try await store.sql.settled() } * 1_000
        let query = EventQuery(
            projectID: projectID, received: min(span.lowerBound, settled)..<min(span.upperBound, settled),
            happened: try parameters.happened(), name: parameters.text("event"), distinctID: parameters.text("distinct_id"), limit: .max,
            after: after)
        let isCompressed = request.headers.takes("gzip", in: .acceptEncoding)
        var response = Response(
            status: .ok, headers: [.contentType: "application/x-ndjson", .cacheControl: "no-store", .vary: "accept-encoding"])
        if isCompressed { response.headers[.contentEncoding] = "gzip" }
        if request.method == .head { return response.withoutLength() }
        let place = try places.take(1, of: projectID)
        response.body = ResponseBody { writer in
            try await send(query, for: holder, context, compressor: isCompressed ? Gzip.Compressor() : nil, to: &writer)
            withExtendedLifetime(place) {}
            try await writer.finish(nil)
        }
        return response
    }

    /// Where an export that was cut goes on.
    private func position(_ id: EventID?, _ projectID: Int32) async throws -> EventPosition? {
        guard let id else { return nil }
        let place = try await questions.reading { () throws(StoreError) in
            try await questions.store.reader.place(EventKey(id: id, projectID: projectID))
        }
        guard let place else {
            throw RequestProblem.parameter(
                "after",
                "must be the event_id of a line that was exported and is still in the store: retention or a restore may have removed it; begin a new file"
            )
        }
        return place
    }

    private func send(
        _ query: EventQuery, for holder: Keys.Holder, _ context: IngestContext, compressor: Gzip.Compressor?,
        to writer: inout some ResponseBodyWriter
    ) async throws {
        var (rest, width, sentAt) = (Optional(query), ServerLimits.exportWidth, ContinuousClock.now)
        while let query = rest {
            // Cut, as when the server stops: without the end of the body nobody takes a part for the whole.
            guard questions.keys.isValid(holder) else {
                throw RequestProblem(.unknownKey, detail: "this key has been revoked, or has expired")
            }
            let isSilent = sentAt + ServerLimits.liveHeartbeat <= .now
            let bytes: [UInt8]
            (bytes, rest) = try await step(query, &width, compressor, isSilent, context)
            try await writer.write(inPieces: bytes)
            if !bytes.isEmpty { sentAt = .now }
        }
    }

    /// Reads one step in a turn, for which it waits as long as needed. The turn includes the compression.
    ///
    /// - Parameter isSilent: Whether nothing has been sent for so long that a proxy could close the connection.
    private func step(
        _ query: EventQuery, _ width: inout Int, _ compressor: Gzip.Compressor?, _ isSilent: Bool, _ context: IngestContext
    ) async throws -> (bytes: [UInt8], rest: EventQuery?) {
        // The client sees that the export was cut, and goes on with the next server.
        if Task.isShuttingDownGracefully { throw RequestProblem(.stopping, detail: "the server stops") }
        return try await questions.heavily(for: context, of: query.projectID, in: turns, within: ServerLimits.heavyRead) {
            turn throws(StoreError) in
            let step = try await questions.store.reader.stepForward(query, width: &width, in: turn)
            var lines = JSONWriter(capacity: step.events.reduce(1) { $0 + $1.properties.count + 300 })
            for event in step.events { lines.line(event) }
            // White space before the next object, so that proxies keep the connection open.
            if step.events.isEmpty, isSilent, step.rest != nil { lines.raw(" ") }
            let isLast = step.rest == nil
            let bytes = lines.bytes.isEmpty && !isLast ? [] : compressor?.add(lines.bytes, isLast: isLast) ?? lines.bytes
            return (bytes, step.rest)
        }
    }
}
