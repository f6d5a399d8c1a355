import HapaxClient
import HapaxModel

/// Answers as a test's script says, and remembers every request.
package final class ScriptedTransport: EventTransport {
    package typealias Answer = @Sendable (SentBatch) async -> Result<TransportAnswer, TransportFailure>

    private struct State {
        var answer: Answer
        var batches: [SentBatch] = []
        var closed = false
        var hanging: [CheckedContinuation<Void, Never>] = []
    }

    private let state: Locked<State>
    private let made = AwaitedCount()

    package init(_ answer: @escaping Answer = { .success($0.receipt()) }) {
        state = Locked(State(answer: answer))
    }

    /// These answers first, then receipts.
    package static func receipts(after answers: [Result<TransportAnswer, TransportFailure>]) -> Answer {
        let left = Locked(answers[...])
        return { batch in left.withLock { $0.popFirst() } ?? .success(batch.receipt()) }
    }

    /// In the order they were sent.
    package var batches: [SentBatch] { state.withLock { $0.batches } }

    package func script(_ answer: @escaping Answer) { state.withLock { $0.answer = answer } }

    /// Returns once so many requests have been made.
    package func requests(_ count: Int) async {
        await made.reaches(count)
    }

    /// Returns when the transport is closed, as a request that never gets an answer does.
    package func hang() async -> Result<TransportAnswer, TransportFailure> {
        await withCheckedContinuation { continuation in
            let closed = state.withLock { state in
                if !state.closed { state.hanging.append(continuation) }
                return state.closed
            }
            if closed { continuation.resume() }
        }
        return .failure(.aborted)
    }

    package func send(_ request: TransportRequest) async -> Result<TransportAnswer, TransportFailure> {
        guard let batch = SentBatch(request) else { return .failure(.other(-1)) }
        let answer: Answer? = state.withLock { state in
            if state.closed { return nil }
            state.batches.append(batch)
            made.set(state.batches.count)
            return state.answer
        }
        guard let answer else { return .failure(.aborted) }
        return await answer(batch)
    }

    package func close() {
        let hanging = state.withLock { state in
            state.closed = true
            defer { state.hanging = [] }
            return state.hanging
        }
        for continuation in hanging { continuation.resume() }
    }
}

/// A request, read back with the server's own scanner.
package struct SentBatch: Sendable {
    package let request: TransportRequest
    package let body: [UInt8]
    package let scanned: ScannedBody

    package init?(_ request: TransportRequest) {
        self.request = request
        let isCompressed = request.headers.contains { $0.name == "Content-Encoding" && $0.value == "gzip" }
        let plain = isCompressed ? try? Gzip.decompress(request.body, limit: EventLimits.maximumDecompressedBodyBytes) : request.body
        guard let plain, let scanned = try? ScannedBody(json: plain[...]) else { return nil }
        body = plain
        self.scanned = scanned
    }

    package var ids: [EventID] { scanned.events.compactMap(\.id) }
    package var names: [String] { scanned.events.map { String(decoding: $0.name, as: UTF8.self) } }
    package var sequences: [Int64] { scanned.events.compactMap(\.sequence) }

    /// All stored but for those that `outcome` says something else about.
    package func receipt(_ outcome: (ScannedEvent) -> Receipt.Outcome = { _ in .stored }) -> TransportAnswer {
        let results = scanned.events.enumerated().compactMap { index, event -> Receipt.Result? in
            let outcome = outcome(event)
            return outcome == .stored ? nil : Receipt.Result(index: index, eventID: event.id, outcome: outcome)
        }
        let count = scanned.events.count
        return TransportAnswer(
            status: 200, headers: ["content-type": "application/json"],
            body: Receipt(batchID: scanned.envelope.batchID, received: count, stored: count - results.count, results: results).encoded())
    }
}

extension TransportAnswer {
    package static func problem(_ code: RequestProblem.Code, headers: [String: String] = [:]) -> TransportAnswer {
        TransportAnswer(
            status: code.status, headers: headers.merging(["content-type": RequestProblem.contentType]) { $1 },
            body: RequestProblem(code, detail: "a test").encoded(requestID: "test"))
    }
}
