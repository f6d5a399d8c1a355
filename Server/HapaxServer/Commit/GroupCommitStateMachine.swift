/// Decides which requests are committed together, and when.
///
/// The first request to find a writer free is committed at once; what arrives while all writers are busy waits and forms the next group. There
/// is no timer: a group is as large as the load makes it. A request is never split.
///
/// A value without clock, I/O, lock or task. `Item` is whatever the owner wants back.
struct GroupCommitStateMachine<Item> {
    struct Limits: Equatable, Sendable {
        /// Events at which a group takes no further request; one request alone may be larger.
        var groupEvents = 2_000
        /// Bytes of waiting requests beyond which a further one is refused.
        var waitingBytes = 64 * 1024 * 1024
    }

    enum Admission: Equatable {
        /// It waits for a writer to come free.
        case waiting
        /// The writer was free and has a group now.
        case commit(writer: Int)
        /// Refused: more would be waiting than may be.
        case overloaded
        /// Refused: no further request is taken.
        case stopping
    }

    /// What a writer that has nothing to do should do.
    enum Work {
        case commit([Item])
        /// Stay until ``Admission/commit(writer:)`` names it, or stopping ends it.
        case wait
        /// Nothing will come any more.
        case end
    }

    private struct Waiting {
        var item: Item
        var events: Int
        var bytes: Int
    }

    private let limits: Limits
    private var waiting: [Waiting] = []
    /// Waiting requests before this index have been taken.
    private var head = 0
    private(set) var waitingBytes = 0
    private var idleWriters: [Int] = []
    private var isStopping = false

    init(limits: Limits = Limits()) {
        self.limits = limits
    }

    var waitingCount: Int { waiting.count - head }

    /// A request has arrived. If a writer is named, it must now be given ``writerBecameFree(_:)``'s answer.
    mutating func requestArrived(_ item: Item, events: Int, bytes: Int) -> Admission {
        if isStopping { return .stopping }
        // An empty house takes any single request: its size has been limited before.
        guard waitingCount == 0 || waitingBytes + bytes <= limits.waitingBytes else { return .overloaded }
        waiting.append(Waiting(item: item, events: events, bytes: bytes))
        waitingBytes += bytes
        guard let writer = idleWriters.popLast() else { return .waiting }
        return .commit(writer: writer)
    }

    /// A writer has nothing to do: at its start, and after each group, committed or not.
    mutating func writerBecameFree(_ writer: Int) -> Work {
        let group = takeGroup()
        if !group.isEmpty { return .commit(group) }
        if isStopping { return .end }
        idleWriters.append(writer)
        return .wait
    }

    /// No further request is taken; what waits is still committed.
    ///
    /// - Returns: The writers that wait and must be told to end.
    mutating func stopRequested() -> [Int] {
        isStopping = true
        defer { idleWriters = [] }
        return idleWriters
    }

    private mutating func takeGroup() -> [Item] {
        var group: [Item] = []
        var events = 0
        while head < waiting.count, group.isEmpty || events + waiting[head].events <= limits.groupEvents {
            events += waiting[head].events
            waitingBytes -= waiting[head].bytes
            group.append(waiting[head].item)
            head += 1
        }
        // Amortised: what is moved has been passed by at least as many.
        if head * 2 >= waiting.count {
            waiting.removeFirst(head)
            head = 0
        }
        return group
    }
}
