import NIOCore

/// All connections, and who has to go when there are too many of them or their bodies take too much.
///
/// A value without clock, I/O or lock; ``Connections`` owns it.
struct ConnectionTable {
    typealias ID = UInt64

    /// What a connection is doing, from the first to go to the last.
    enum Standing: Hashable {
        case idle
        /// A request is on its way and has not wholly arrived.
        case arriving
        /// An answer was written and has not been taken.
        case answered
        /// A request is being answered. Not sent away: it costs the store already, and is over soon.
        case answering
    }

    /// What an arrival of bytes leads to.
    enum Admission: Equatable {
        case admitted
        /// This one, which is slower, gives way.
        case cut(ID)
        /// There is no room, and nobody slower.
        case refused
    }

    private struct Connection {
        var standing = Standing.arriving
        /// When it took that standing.
        var since: NIODeadline
        /// Its neighbours in the chain of its standing.
        var before: ID?
        var after: ID?
        /// Of bodies that have not been answered.
        var bytes = 0
        /// It has been told to go and does not count any more, but its event loop has not come to it.
        var isLeaving = false
        var isCut = false
    }

    /// Connections of one standing that are to stay, in the order in which they took it: so who goes first is found without a search.
    private struct Chain {
        var first: ID?
        var last: ID?
    }

    private let limits: ServerLimits
    private var chains: [Standing: Chain] = [:]
    private var connections: [ID: Connection] = [:]
    private(set) var arrivingBytes = 0
    private var leaving = 0

    init(limits: ServerLimits) {
        self.limits = limits
    }

    /// Those that are to stay.
    var count: Int { connections.count - leaving }

    /// - Returns: Who has to go: another one, the new one itself, or nobody.
    mutating func opened(_ id: ID, _ now: NIODeadline) -> ID? {
        connections[id] = Connection(since: now)
        link(id, .arriving)
        return count > limits.connections ? shed(for: id) : nil
    }

    /// Who goes when there are too many.
    ///
    /// - Parameter newcomer: The last to go; nil if the system itself has no room for one more.
    mutating func shed(for newcomer: ID? = nil) -> ID? {
        guard let id = first(of: .idle) ?? first(of: .arriving, but: newcomer) ?? first(of: .answered) ?? newcomer else { return nil }
        unlink(id)
        connections[id]?.isLeaving = true
        leaving += 1
        return id
    }

    /// The one that took a standing first.
    private func first(of standing: Standing, but newcomer: ID? = nil) -> ID? {
        guard let first = chains[standing]?.first else { return nil }
        return first == newcomer ? connections[first]?.after : first
    }

    private mutating func link(_ id: ID, _ standing: Standing) {
        var chain = chains[standing] ?? Chain()
        connections[id]?.before = chain.last
        connections[id]?.after = nil
        if let last = chain.last { connections[last]?.after = id } else { chain.first = id }
        chain.last = id
        chains[standing] = chain
    }

    /// One that is leaving is in no chain.
    private mutating func unlink(_ id: ID) {
        guard let known = connections[id], !known.isLeaving else { return }
        if let before = known.before { connections[before]?.after = known.after } else { chains[known.standing]?.first = known.after }
        if let after = known.after { connections[after]?.before = known.before } else { chains[known.standing]?.last = known.before }
    }

    mutating func stands(_ id: ID, _ standing: Standing, _ now: NIODeadline) {
        guard let known = connections[id], known.standing != standing else { return }
        unlink(id)
        connections[id]?.standing = standing
        connections[id]?.since = now
        if !known.isLeaving { link(id, standing) }
    }

    /// Some of a body has come.
    mutating func bytesArrived(_ id: ID, _ count: Int, _ now: NIODeadline) -> Admission {
        guard let connection = connections[id] else { return .refused }
        // Its event loop has not come to the refusal yet; what still comes is thrown away behind it.
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

    /// Of the bodies that are arriving the one of which least has come for its time.
    private func slowest(_ now: NIODeadline) -> ID? {
        func bytesPerSecond(_ connection: Connection) -> Double {
            Double(connection.bytes) * 1e9 / Double(max((now - connection.since).nanoseconds, 1))
        }
        return connections.filter { $0.value.standing == .arriving && $0.value.bytes > 0 && !$0.value.isCut }
            .min { bytesPerSecond($0.value) < bytesPerSecond($1.value) }?.key
    }

    /// Its requests have been answered, or its bodies are thrown away.
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
