import HapaxModel
import NIOCore

/// Performs what ``ConnectionTable`` decides: any event loop can close any connection.
final class Connections: Sendable {
    /// How to close one connection, from any event loop.
    struct Handlers: Sendable {
        /// Closes the connection, to make room for another.
        var shed: @Sendable () -> Void
        /// Refuses the body that is arriving.
        var cut: @Sendable () -> Void
    }

    private struct State {
        var table: ConnectionTable
        var handlers: [ConnectionTable.ID: Handlers] = [:]
        var next: ConnectionTable.ID = 0
        var isStopping = false
        var shed = 0
        var cut = 0
    }

    struct Figures: Sendable {
        var open: Int
        var arrivingBytes: Int
        /// Since the start.
        var shed: Int
        var cut: Int
    }

    private let state: Locked<State>
    let limits: ServerLimits

    init(limits: ServerLimits) {
        self.limits = limits
        state = Locked(State(table: ConnectionTable(limits: limits)))
    }

    /// Whether graceful stop has begun. A connection that is still being set up gets no event for that, so it asks here.
    var isStopping: Bool { state.withLock { $0.isStopping } }

    var figures: Figures {
        state.withLock { Figures(open: $0.table.count, arrivingBytes: $0.table.arrivingBytes, shed: $0.shed, cut: $0.cut) }
    }

    func stop() {
        state.withLock { $0.isStopping = true }
    }

    func opened(_ handlers: Handlers, _ now: NIODeadline) -> ConnectionTable.ID {
        let (id, leaving) = state.withLock { state in
            state.next += 1
            state.handlers[state.next] = handlers
            let leaving = state.table.opened(state.next, now)
            if leaving != nil { state.shed += 1 }
            return (state.next, leaving.flatMap { state.handlers[$0] })
        }
        leaving?.shed()
        return id
    }

    /// Closes a connection, because the system has no descriptor left for a new one.
    func shed() {
        state.withLock { state in
            let leaving = state.table.shed()
            if leaving != nil { state.shed += 1 }
            return leaving.flatMap { state.handlers[$0] }
        }?.shed()
    }

    func changed(_ id: ConnectionTable.ID, _ phase: ConnectionTable.Phase, _ now: NIODeadline) {
        state.withLock { $0.table.changed(id, phase, now) }
    }

    /// - Returns: Whether there is room for them.
    func bytesArrived(_ id: ConnectionTable.ID, _ count: Int, _ now: NIODeadline) -> Bool {
        let (isAdmitted, leaving) = state.withLock { state in
            switch state.table.bytesArrived(id, count, now) {
            case .admitted: return (true, nil as Handlers?)
            case .cut(let slower):
                state.cut += 1
                return (true, state.handlers[slower])
            case .refused: return (false, nil)
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
            state.handlers[id] = nil
        }
    }
}
