import HapaxModel
import TestSupport

/// Senders that go on whatever they are answered: each sends one new event after the other, and the same one again until it is acknowledged,
/// as a client does.
final class SteadyLoad: Sendable {
    struct Books: Sendable {
        var acknowledged: [EventID] = []
        /// When the latest acknowledgement came.
        var latest: ContinuousClock.Instant?
        var statuses: [Int: Int] = [:]
        /// Requests that brought no answer.
        var unanswered = 0
    }

    private struct State {
        var books = Books()
        var isStopped = false
        /// Who waits for which books.
        var waiters: [(isServed: @Sendable (Books) -> Bool, continuation: CheckedContinuation<Void, Never>)] = []

        /// Those that have waited long enough.
        mutating func served() -> [CheckedContinuation<Void, Never>] {
            let served = waiters.filter { isStopped || $0.isServed(books) }
            waiters.removeAll { isStopped || $0.isServed(books) }
            return served.map(\.continuation)
        }
    }

    private let state = Locked(State())
    private let ports: @Sendable () -> [Int]

    /// - Parameter ports: The servers; each attempt goes to the next of them.
    init(ports: @escaping @Sendable () -> [Int]) {
        self.ports = ports
    }

    var books: Books { state.withLock { $0.books } }

    /// Sends until ``stop()``.
    func run(senders: Int = 4) async {
        await withDiscardingTaskGroup { group in
            for sender in 0..<senders { group.addTask { await self.send(sender) } }
        }
    }

    func stop() {
        let waiters = state.withLock { state in
            state.isStopped = true
            return state.served()
        }
        for waiter in waiters { waiter.resume() }
    }

    /// Returns once `count` more events have been acknowledged.
    func wait(for count: Int) async {
        let goal = books.acknowledged.count + count
        await wait { $0.acknowledged.count >= goal }
    }

    /// Returns once the books are as `isServed` wants them.
    func wait(until isServed: @escaping @Sendable (Books) -> Bool) async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let waiters = state.withLock { state in
                    state.waiters.append((isServed, continuation))
                    return state.served()
                }
                for waiter in waiters { waiter.resume() }
            }
        } onCancel: {
            stop()
        }
    }

    private func send(_ sender: Int) async {
        var ids = UUIDv7Generator()
        var attempt = sender
        while !state.withLock({ $0.isStopped }), !Task.isCancelled {
            let id = ids.next(unixMilliseconds: 1_767_225_600_000)
            let event = Event(id: id, name: "order_paid", time: 1_767_225_600_000, distinctID: "c\(sender)")
            let body = EventBatch(envelope: .init(), events: [event.encoded().bytes]).encoded()
            var isAcknowledged = false
            // Whatever was sent is sent until it is known: then the books are whole.
            while !isAcknowledged, !Task.isCancelled {
                attempt += 1
                let ports = ports()
                isAcknowledged = await deliver(body, id, to: ports[attempt % ports.count])
                // As a client does, if in a greater hurry: a load, not a flood.
                if !isAcknowledged { try? await Task.sleep(for: .milliseconds(50)) }
            }
        }
    }

    private func deliver(_ body: [UInt8], _ id: EventID, to port: Int) async -> Bool {
        let headers = ["Authorization": "Bearer \(ServerUnderTest.key)", "Content-Type": "application/json"]
        guard let answer = try? await RawHTTP.post(port: port, headers: headers, body: body) else {
            state.withLock { $0.books.unanswered += 1 }
            return false
        }
        let receipt = answer.status == 200 ? try? Receipt(json: answer.body) : nil
        let isAcknowledged = receipt.map { $0.stored + $0.duplicates == 1 } ?? false
        let waiters = state.withLock { state in
            state.books.statuses[answer.status, default: 0] += 1
            if isAcknowledged {
                state.books.acknowledged.append(id)
                state.books.latest = .now
            }
            return state.served()
        }
        for waiter in waiters { waiter.resume() }
        return isAcknowledged
    }
}
