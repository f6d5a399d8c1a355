import HapaxModel
import HapaxTestKit
import TestSupport

@testable import HapaxClient

/// What an ingest server does, as far as a client can see: stores each id once and says so. Over real sockets.
final class IngestStandIn: Sendable {
    let server: LoopbackServer
    private let state: Locked<State>

    struct State {
        var stored: [EventID: [UInt8]] = [:]
        /// In the order they came.
        var batches: [SentBatch] = []
        /// Answers 503 to so many requests first.
        var failuresLeft = 0
        var status = 503
        /// Answers so in place of ``status``, in our own words.
        var problem: RequestProblem?
        /// Stops answering after so many batches; the request stays open.
        var silentAfter: Int?
        /// Answers `retry` for this event so many times.
        var retry: (time: Int64, left: Int) = (0, 0)
        var isRefused: @Sendable (ScannedEvent) -> Bool = { _ in false }
        /// A batch that holds one is refused as a whole, in our own words: 400 `malformed`.
        var isPoison: @Sendable (ScannedEvent) -> Bool = { _ in false }
        var poisonedBatches = 0
        /// A batch that holds one is refused by a firewall: 403, with a page.
        var isBlocked: @Sendable (ScannedEvent) -> Bool = { _ in false }
        var requests = 0 {
            didSet { came.set(requests) }
        }
        let came = AwaitedCount()
    }

    init() throws {
        let state = Locked(State())
        self.state = state
        server = try LoopbackServer { Self.react($0, state) }
    }

    var url: String { "http://127.0.0.1:\(server.port)" }
    var stored: [EventID: [UInt8]] { state.withLock { $0.stored } }
    var poisonedBatches: Int { state.withLock { $0.poisonedBatches } }
    var batches: [SentBatch] { state.withLock { $0.batches } }

    @discardableResult
    func change<Value: Sendable>(_ body: (inout sending State) -> sending Value) -> Value { state.withLock { body(&$0) } }

    /// Returns once so many requests have come.
    func requests(_ count: Int) async {
        await state.withLock { $0.came }.reaches(count)
    }

    private static func react(_ request: LoopbackServer.Request, _ state: Locked<State>) -> LoopbackServer.Reaction {
        let headers: [(name: String, value: String)] =
            request.head.lowercased().contains("content-encoding: gzip") ? [("Content-Encoding", "gzip")] : []
        let batch = SentBatch(TransportRequest(url: "", headers: headers, body: request.body, timeout: .seconds(1)))
        return state.withLock { state in
            state.requests += 1
            return react(batch, &state)
        }
    }

    static func answer(_ problem: RequestProblem) -> LoopbackServer.Reaction {
        let body = String(decoding: problem.encoded(requestID: "1"), as: UTF8.self)
        return .answer(
            "HTTP/1.1 \(problem.code.status) No\r\nContent-Type: \(RequestProblem.contentType)\r\n"
                + "Content-Length: \(body.utf8.count)\r\n\r\n\(body)")
    }

    private static func react(_ batch: SentBatch?, _ state: inout State) -> LoopbackServer.Reaction {
        guard let batch else { return .answer("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") }
        if state.failuresLeft > 0 {
            state.failuresLeft -= 1
            if let problem = state.problem { return answer(problem) }
            return .answer("HTTP/1.1 \(state.status) No\r\nContent-Length: 0\r\n\r\n")
        }
        if let silentAfter = state.silentAfter, state.batches.count >= silentAfter { return .silence }
        if batch.scanned.events.contains(where: { state.isBlocked($0) }) {
            return .answer("HTTP/1.1 403 Forbidden\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>")
        }
        if batch.scanned.events.contains(where: { state.isPoison($0) }) {
            state.poisonedBatches += 1
            return answer(RequestProblem(.malformed, detail: "refused"))
        }
        state.batches.append(batch)
        let answer = batch.receipt { event in
            guard let id = event.id, event.problem == nil, !state.isRefused(event) else { return .rejected }
            if state.stored[id] != nil { return .duplicate }
            if state.retry.left > 0, state.retry.time == event.time {
                state.retry.left -= 1
                return .retry
            }
            state.stored[id] = Array(event.wire)
            return .stored
        }
        let body = String(decoding: answer.body, as: UTF8.self)
        return .answer("HTTP/1.1 200 OK\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)")
    }
}
