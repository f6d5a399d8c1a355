import HapaxModel
import NIOCore

/// Performs what ``ConnectionTable`` decides: each connection can be told to go from any other's event loop.
final class Connections: Sendable {
    /// How a connection is told to go.
    struct Ways: Sendable {
        /// Ends the connection: it rests, or has the oldest unfinished request of all when there are too many.
        var shed: @Sendable () -> Void
        /// Refuses the body that is arriving.
        var cut: @Sendable () -> Void
    }

    private struct State {
        var table: ConnectionTable
        var ways: [ConnectionTable.ID: Ways] = [:]
        var next: ConnectionTable.ID = 0
        var isStopping = false
    }

    private let state: Locked<State>
    let limits: ServerLimits

    init(limits: ServerLimits) {
        self.limits = limits
        state = Locked(State(table: ConnectionTable(limits: limits)))
    }

    /// Whether graceful stop has begun. A connection that is still being set up then does not hear of it.
    var isStopping: Bool { state.withLock { $0.isStopping } }

    func stop() {
        state.withLock { $0.isStopping = true }
    }

    func opened(_ ways: Ways, _ now: NIODeadline) -> ConnectionTable.ID {
        let (id, leaving) = state.withLock { state in
            state.next += 1
            state.ways[state.next] = ways
            return (state.next, state.table.opened(state.next, now).flatMap { state.ways[$0] })
        }
        leaving?.shed()
        return id
    }

    /// The system has no descriptor left for one more.
    func shed() {
        state.withLock { state in state.table.shed().flatMap { state.ways[$0] } }?.shed()
    }

    func stands(_ id: ConnectionTable.ID, _ standing: ConnectionTable.Standing, _ now: NIODeadline) {
        state.withLock { $0.table.stands(id, standing, now) }
    }

    /// - Returns: Whether there is room for them.
    func bytesArrived(_ id: ConnectionTable.ID, _ count: Int, _ now: NIODeadline) -> Bool {
        let (isAdmitted, leaving) = state.withLock { state in
            switch state.table.bytesArrived(id, count, now) {
            case .admitted: (true, nil as Ways?)
            case .cut(let slower): (true, state.ways[slower])
            case .refused: (false, nil)
            }
        }
        leaving?.cut()
        return isAdmitted
    }

    func release(_ id: ConnectionTable.ID) {
        state.withLock { $0.table.release(id) }
    }

    func closed(_ id: ConnectionTable.ID) {
        state.withLock { state in
            state.table.closed(id)
            state.ways[id] = nil
        }
    }
}
