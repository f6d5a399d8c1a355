import HTTPTypes
import HapaxModel
import Hummingbird

/// `GET /v1/live`: what became of each event at this server, at the moment it is answered, as server-sent events
/// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
@available(macOS 14, *)
struct LiveRoute: Sendable {
    let questions: Questions
    let live: Live

    func respond(to request: Request) throws(RequestProblem) -> Response {
        let (parameters, projectID, holder) = try questions.accept(request, ["event", "outcome"])
        let filter = LiveFeed.Filter(
            name: parameters.text("event").map { Array($0.utf8) }, outcome: try parameters.word("outcome", Receipt.Outcome.self))
        var response = Response(status: .ok, headers: [.contentType: "text/event-stream", .cacheControl: "no-store"])
        if request.method == .head { return response.withoutLength() }
        guard let watch = live.watch(projectID, filter) else {
            throw RequestProblem(.projectBusy, detail: "\(ServerLimits.liveStreams) streams of this project are open already")
        }
        response.body = ResponseBody { writer in
            try await send(watch, for: holder, to: &writer)
            try await writer.finish(nil)
        }
        return response
    }

    private func send(_ watch: Live.Watch, for holder: Keys.Holder, to writer: inout some ResponseBodyWriter) async throws {
        var sentAt = ContinuousClock.now
        // Sent at once, so that the client knows that the stream has begun.
        try await writer.write(ByteBuffer(string: ": this server, from now on\n\n"))
        while questions.keys.isValid(holder), let messages = watch.messages() {
            if !messages.isEmpty {
                try await writer.write(ByteBuffer(bytes: messages.flatMap(\.text)))
                sentAt = .now
            } else if sentAt + ServerLimits.liveHeartbeat <= .now {
                try await writer.write(ByteBuffer(string: ": still here\n\n"))
                sentAt = .now
            }
            try await Task.sleep(for: ServerLimits.liveInterval)
        }
    }
}

extension LiveFeed.Message {
    /// One server-sent event. A line break would end its data: JSON escapes those in texts, and those between values become spaces.
    fileprivate var text: [UInt8] {
        var writer = JSONWriter()
        switch self {
        case .event(let json):
            writer.raw("event: event\ndata: ")
            writer.raw(json.map { $0 == 0x0A || $0 == 0x0D ? 0x20 : $0 })
        case .refusal(let refusal):
            writer.raw("event: refusal\ndata: {")
            writer.members(of: refusal)
            writer.raw("}")
        case .rate(let counts):
            writer.raw("event: rate\ndata: {\"received\":")
            writer.integer(counts.received)
            writer.raw(",\"stored\":")
            writer.integer(counts.stored)
            writer.raw(",\"duplicates\":")
            writer.integer(counts.duplicates)
            writer.raw(",\"refused\":")
            writer.integer(counts.refused)
            writer.raw("}")
        case .missed(let count):
            writer.raw("event: missed\ndata: {\"rows\":")
            writer.integer(count)
            writer.raw("}")
        }
        writer.raw("\n\n")
        return writer.bytes
    }
}
