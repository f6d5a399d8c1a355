import HapaxClient
import HapaxModel

/// What an ingest server would answer, without one: receipts, or what the script says instead.
final class ScriptedServer: EventTransport {
    private struct State {
        var refusals: [Result<TransportAnswer, TransportFailure>] = []
        var always: Result<TransportAnswer, TransportFailure>?
        var stored: [String] = []
        var requests = 0
        var waiters: [CheckedContinuation<Void, Never>] = []
        var isClosed = false
    }

    private let state = Locked(State())

    /// - Parameters:
    ///   - refusals: The first answers.
    ///   - always: Every later one, instead of a receipt.
    init(_ refusals: [Result<TransportAnswer, TransportFailure>] = [], always: Result<TransportAnswer, TransportFailure>? = nil) {
        state.withLock { ($0.refusals, $0.always) = (refusals, always) }
    }

    /// Names, in the order they were stored.
    var stored: [String] { state.withLock { $0.stored } }
    var requests: Int { state.withLock { $0.requests } }

    /// Returns once a request has been made.
    func requested() async {
        await withCheckedContinuation { continuation in
            let isThere = state.withLock { state in
                if state.requests == 0 { state.waiters.append(continuation) }
                return state.requests > 0
            }
            if isThere { continuation.resume() }
        }
    }

    func send(_ request: TransportRequest) async -> Result<TransportAnswer, TransportFailure> {
        let isCompressed = request.headers.contains { $0.name == "Content-Encoding" }
        guard
            let body = isCompressed
                ? try? Gzip.decompress(request.body, limit: EventLimits.maximumDecompressedBodyBytes) : request.body,
            let batch = try? ScannedBody(json: body[...])
        else { return .failure(.other(-1)) }
        let (answer, waiters) = state.withLock { state in
            state.requests += 1
            defer { state.waiters = [] }
            return (Self.answer(batch, &state), state.waiters)
        }
        for waiter in waiters { waiter.resume() }
        return answer
    }

    private static func answer(_ batch: ScannedBody, _ state: inout State) -> Result<TransportAnswer, TransportFailure> {
        if state.isClosed { return .failure(.aborted) }
        if !state.refusals.isEmpty { return state.refusals.removeFirst() }
        if let always = state.always { return always }
        let count = batch.events.count
        state.stored += batch.events.map { String(decoding: $0.name, as: UTF8.self) }
        let receipt = Receipt(batchID: batch.envelope.batchID, received: count, stored: count, results: [])
        return .success(TransportAnswer(status: 200, body: receipt.encoded()))
    }

    func close() { state.withLock { $0.isClosed = true } }
}
