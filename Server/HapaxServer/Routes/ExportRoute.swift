import HTTPTypes
import HapaxModel
import Hummingbird
import ServiceLifecycle

/// `GET /v1/export`: everything of a project, oldest received first, one JSON object on each line.
///
/// It ends where nothing can appear any more between what it has sent, so whoever goes on later from its last line misses nothing.
@available(macOS 14, *)
struct ExportRoute: Sendable {
    let reading: ReadRoutes
    private let places = ExportPlaces()

    init(reading: ReadRoutes) {
        self.reading = reading
    }

    func respond(to request: Request) async throws -> Response {
        let (parameters, projectID, _) = try reading.question(request, ["from", "to", "event", "distinct_id", "after"])
        let span = try parameters.span()
        let after = try await position(try parameters.id("after"), projectID)
        let store = reading.store
        let settled = try await reading.reading { () throws(StoreError) in try await store.reports.settled() } * 1_000
        let query = EventQuery(
            projectID: projectID, received: min(span.lowerBound, settled)..<min(span.upperBound, settled), name: parameters.text("event"),
            distinctID: parameters.text("distinct_id"), limit: .max, after: after)
        let isCompressed = request.headers[.acceptEncoding]?.lowercased().contains("gzip") == true
        var response = Response(
            status: .ok, headers: [.contentType: "application/x-ndjson", .cacheControl: "no-store", .vary: "accept-encoding"])
        if isCompressed { response.headers[.contentEncoding] = "gzip" }
        if request.method == .head { return response }
        guard let place = places.take(projectID) else {
            throw RequestProblem(.projectBusy, detail: "\(ServerLimits.exports) exports of this project are under way already")
        }
        response.body = ResponseBody { writer in
            try await send(query, compressor: isCompressed ? Gzip.Compressor() : nil, to: &writer)
            withExtendedLifetime(place) {}
            try await writer.finish(nil)
        }
        return response
    }

    /// Where an export that was cut goes on.
    private func position(_ id: EventID?, _ projectID: Int32) async throws -> EventPosition? {
        guard let id else { return nil }
        let event = try await reading.reading { () throws(StoreError) in
            try await reading.store.reader.event(EventKey(id: id, projectID: projectID))
        }
        guard let event else {
            throw QueryParameters.problem("after", "must be the event_id of a line that was exported, and is still stored")
        }
        return event.position
    }

    private func send(_ query: EventQuery, compressor: Gzip.Compressor?, to writer: inout some ResponseBodyWriter) async throws {
        var (rest, width, sentAt) = (Optional(query), ServerLimits.exportWidth, ContinuousClock.now)
        while let query = rest {
            let isSilent = sentAt + ServerLimits.liveHeartbeat <= .now
            let bytes: [UInt8]
            (bytes, rest) = try await step(query, &width, compressor, isSilent)
            // In pieces: each has the time that an answer has.
            for start in stride(from: 0, to: bytes.count, by: Self.pieceBytes) {
                try await writer.write(ByteBuffer(bytes: bytes[start..<min(start + Self.pieceBytes, bytes.count)]))
                sentAt = .now
            }
        }
    }

    private static let pieceBytes = 32 * 1024

    /// Behind people's questions, however long that takes; what it costs to compress counts as part of it.
    private func step(
        _ query: EventQuery, _ width: inout Int, _ compressor: Gzip.Compressor?, _ isSilent: Bool
    ) async throws -> (bytes: [UInt8], rest: EventQuery?) {
        while true {
            // Whoever asked sees that it was cut, and goes on with the server that comes next.
            if Task.isShuttingDownGracefully { throw RequestProblem(.stopping, detail: "the server stops") }
            var next = width
            do {
                let result = try await reading.heavily(within: ServerLimits.heavyRead) { deadline throws(StoreError) in
                    let step = try await reading.store.reader.stepForward(query, width: &next, until: deadline)
                    var lines = JSONWriter(capacity: step.events.reduce(1) { $0 + $1.properties.count + 300 })
                    for event in step.events { lines.line(event) }
                    // White space before the next line's object, so that what lies between keeps the connection open.
                    if step.events.isEmpty, isSilent, step.rest != nil { lines.raw(" ") }
                    let isLast = step.rest == nil
                    let bytes = lines.bytes.isEmpty && !isLast ? [] : compressor?.add(lines.bytes, isLast: isLast) ?? lines.bytes
                    return (bytes, step.rest)
                }
                width = next
                return result
            } catch let problem as RequestProblem where problem.code == .overloaded {
                continue
            }
        }
    }
}

/// How many exports of each project are under way.
private final class ExportPlaces: Sendable {
    private let counts = Locked<[Int32: Int]>([:])

    /// - Returns: nil if the project has as many as it may.
    func take(_ projectID: Int32) -> Place? {
        counts.withLock { counts in
            guard counts[projectID, default: 0] < ServerLimits.exports else { return nil }
            counts[projectID, default: 0] += 1
            return Place(places: self, projectID: projectID)
        }
    }

    /// Given back with its last reference.
    final class Place: Sendable {
        private let places: ExportPlaces
        private let projectID: Int32

        fileprivate init(places: ExportPlaces, projectID: Int32) {
            self.places = places
            self.projectID = projectID
        }

        deinit {
            places.counts.withLock { counts in
                counts[projectID, default: 0] -= 1
                if counts[projectID] == 0 { counts[projectID] = nil }
            }
        }
    }
}
