import NIOCore

/// All connections, and which one is closed when there are too many of them or their bodies take too much memory.
///
/// A value without clock, I/O or lock; ``Connections`` owns it.
struct ConnectionTable {
    typealias ID = UInt64

    /// What a connection is doing, in the order in which connections are closed to make room.
    enum Phase: Hashable {
        case idle
        /// A request is on its way and has not wholly arrived.
        case arriving
        /// An answer was written and has not been taken.
        case answered
        /// A request is being answered. Never closed to make room: the request has cost the store already, and is over soon.
        case answering
    }

    /// What an arrival of bytes leads to.
    enum Admission: Equatable {
        case admitted
        /// Admitted, and this slower connection's body is refused instead.
        case cut(ID)
        /// There is no room, and no connection is slower.
        case refused
    }

    private struct Connection {
        var phase = Phase.arriving
        /// Since when it has been doing that.
        var since: NIODeadline
        /// Its neighbours among the connections that are doing the same.
        var before: ID?
        var after: ID?
        /// Bytes of bodies that have not been answered.
        var bytes = 0
        /// Whether it was asked to close. It no longer counts, but its event loop has not closed it yet.
        var isLeaving = false
        var isCut = false
    }

    /// The connections that are doing the same and are not leaving, longest first, so that the one to close is found without a search.
    private struct Chain {
        var first: ID?
        var last: ID?
    }

    private let limits: ServerLimits
    private var chains: [Phase: Chain] = [:]
    private var connections: [ID: Connection] = [:]
    private(set) var arrivingBytes = 0
    private var leaving = 0

    init(limits: ServerLimits) {
        self.limits = limits
    }

    /// How many connections are not leaving.
    var count: Int { connections.count - leaving }

    /// - Returns: The connection to close: another one, or the new one itself; nil if there is room.
    mutating func opened(_ id: ID, _ now: NIODeadline) -> ID? {
        connections[id] = Connection(since: now)
        link(id, .arriving)
        return count > limits.connections ? shed(for: id) : nil
    }

    /// Chooses the connection to close when there are too many.
    ///
    /// - Parameter newcomer: Closed only if no other can be; nil if the system itself has no room for one more.
    mutating func shed(for newcomer: ID? = nil) -> ID? {
        guard let id = first(of: .idle) ?? first(of: .arriving, but: newcomer) ?? first(of: .answered) ?? newcomer else { return nil }
        unlink(id)
        connections[id]?.isLeaving = true
        leaving += 1
        return id
    }

    /// The connection that has been doing this longest.
    private func first(of phase: Phase, but newcomer: ID? = nil) -> ID? {
        guard let first = chains[phase]?.first else { return nil }
        return first == newcomer ? connections[first]?.after : first
    }

    private mutating func link(_ id: ID, _ phase: Phase) {
        var chain = chains[phase] ?? Chain()
        connections[id]?.before = chain.last
        connections[id]?.after = nil
        if let last = chain.last { connections[last]?.after = id } else { chain.first = id }
        chain.last = id
        chains[phase] = chain
    }

    /// Does nothing for a connection that is leaving, since it is in no chain.
    private mutating func unlink(_ id: ID) {
        guard let known = connections[id], !known.isLeaving else { return }
        if let before = known.before { connections[before]?.after = known.after } else { chains[known.phase]?.first = known.after }
        if let after = known.after { connections[after]?.before = known.before } else { chains[known.phase]?.last = known.before }
    }

    mutating func changed(_ id: ID, _ phase: Phase, _ now: NIODeadline) {
        guard let known = connections[id], known.phase != phase else { return }
        unlink(id)
        connections[id]?.phase = phase
        connections[id]?.since = now
        if !known.isLeaving { link(id, phase) }
    }

    mutating func bytesArrived(_ id: ID, _ count: Int, _ now: NIODeadline) -> Admission {
        guard let connection = connections[id] else { return .refused }
        // Its event loop has not refused the body yet. The bytes that still come are thrown away after the refusal.
        if connection.isCut { return .admitted }
        // One body alone always finds room: its size has a limit of its own.
        if arrivingBytes > 0, arrivingBytes + count > limits.arrivingBytes, arrivingBytes > connection.bytes {
            guard let slowest = slowest(now), slowest != id else { return .refused }
            connections[slowest]?.isCut = true
            release(slowest)
            add(id, count)
            return .cut(slowest)
        }
        add(id, count)
        return .admitted
    }

    private mutating func add(_ id: ID, _ count: Int) {
        connections[id]?.bytes += count
        arrivingBytes += count
    }

    /// The connection whose body arrives with the fewest bytes a second.
    private func slowest(_ now: NIODeadline) -> ID? {
        func bytesPerSecond(_ connection: Connection) -> Double {
            Double(connection.bytes) * 1e9 / Double(max((now - connection.since).nanoseconds, 1))
        }
        return connections.filter { $0.value.phase == .arriving && $0.value.bytes > 0 && !$0.value.isCut }
            .min { bytesPerSecond($0.value) < bytesPerSecond($1.value) }?.key
    }

    /// The connection's bytes no longer count: its requests have been answered, or its bodies are thrown away.
    mutating func release(_ id: ID) {
        arrivingBytes -= connections[id]?.bytes ?? 0
        connections[id]?.bytes = 0
    }

    mutating func closed(_ id: ID) {
        release(id)
        unlink(id)
        if connections.removeValue(forKey: id)?.isLeaving == true { leaving -= 1 }
    }
}
