import HapaxModel

/// Lets so many requests work at once, in turn by project, before anything of a body is unpacked: a body that costs its sender little and the
/// server much delays its own project's requests, and others' by one piece of work at most.
///
/// A turn is for work of the processor alone: nobody holds one while waiting for the store or a socket.
final class Turns: Sendable {
    private typealias Waiter = CheckedContinuation<Void, Never>

    private let queue: Locked<TurnQueue<Waiter>>
    /// How long a turn lasts before it looks whether others are to go first.
    private static let slice: Duration = .milliseconds(2)

    init(places: Int = Processors.usable - 1, maximumWaiting: Int = ServerLimits.waitingTurns) {
        queue = Locked(TurnQueue(places: places, maximumWaiting: maximumWaiting))
    }

    /// One request's turn, which ends with ``Turns/run(_:_:)``.
    struct Turn: ~Copyable {
        fileprivate let turns: Turns
        fileprivate let project: Int32
        fileprivate var began: ContinuousClock.Instant

        /// To be called between pieces of work, however small.
        mutating func mayPass() async {
            let now = ContinuousClock.now
            guard now - began >= Turns.slice else { return }
            await turns.giveWay(project, used: now - began)
            began = .now
        }
    }

    /// - Throws: ``RequestProblem/Code/overloaded`` if as many wait as may, and what `body` throws.
    func run<Value>(
        _ project: Int32, _ body: (inout Turn) async throws(RequestProblem) -> Value
    ) async throws(RequestProblem) -> Value {
        guard await begin(project) else { throw RequestProblem(.overloaded, detail: "too many requests wait for their turn") }
        var turn = Turn(turns: self, project: project, began: .now)
        let result: Result<Value, RequestProblem>
        do throws(RequestProblem) { result = .success(try await body(&turn)) } catch { result = .failure(error) }
        let used = ContinuousClock.now - turn.began
        queue.withLock { $0.ended(project, used: used) }?.resume()
        return try result.get()
    }

    private func begin(_ project: Int32) async -> Bool {
        let isRefused = Locked(false)
        await withCheckedContinuation { (waiter: Waiter) in
            switch queue.withLock({ $0.arrived(waiter, of: project) }) {
            case .works: waiter.resume()
            case .waits: break
            case .refused:
                isRefused.withLock { $0 = true }
                waiter.resume()
            }
        }
        return !isRefused.withLock { $0 }
    }

    private func giveWay(_ project: Int32, used: Duration) async {
        await withCheckedContinuation { (waiter: Waiter) in
            let next = queue.withLock { $0.gaveWay(waiter, project, used: used) }
            (next ?? waiter).resume()
        }
    }
}
