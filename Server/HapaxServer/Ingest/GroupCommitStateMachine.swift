/// Decides which requests are committed together, and when.
///
/// The first request to find a writer free is committed at once; what arrives while all writers are busy waits and forms the next group. There
/// is no timer: a group is as large as the load makes it. A request is never split.
///
/// A value without clock, I/O, lock or task. `Item` is whatever the owner wants back.
struct GroupCommitStateMachine<Item> {
    struct Limits: Equatable, Sendable {
        /// See ``ServerLimits/groupEvents``.
        var groupEvents = ServerLimits.groupEvents
        /// See ``ServerLimits/groupBytes``.
        var groupBytes = ServerLimits.groupBytes
        /// See ``ServerLimits/heldBytes``.
        var heldBytes = ServerLimits().heldBytes
        /// See ``ServerLimits/projectActivity``.
        var projectActivity = ServerLimits.projectActivity
    }

    enum Admission: Equatable {
        /// The request waits for a busy writer.
        case waiting
        /// This writer was idle and must be woken to take the request.
        case commit(writer: Int)
        /// Refused: the budget of held bytes is used up.
        case overloaded
        /// Refused: its project would hold more than half of the budget while other projects are active.
        case projectBusy
        /// Refused: the server is stopping.
        case stopping
    }

    /// What a writer that has nothing to do should do.
    enum Work {
        case commit([Item])
        /// Sleep until ``Admission/commit(writer:)`` or ``stopRequested()`` names the writer.
        case wait
        /// Return: no further request will come.
        case end
    }

    private struct Waiting {
        var item: Item
        var project: Int32
        var events: Int
        var bytes: Int
    }

    /// The bytes that one project holds, and when its last request arrived.
    private struct Project {
        var bytes = 0
        var lastArrival: ContinuousClock.Instant
    }

    private let limits: Limits
    private var waiting: [Waiting?] = []
    /// Waiting requests before this index have been taken, and are nil.
    private var head = 0
    /// Bytes of requests that wait or are being committed.
    private(set) var heldBytes = 0
    private var projects: [Int32: Project] = [:]
    /// What each writer is committing.
    private var committing: [Int: [Waiting]] = [:]
    private var idleWriters: [Int] = []
    private var isStopping = false

    init(limits: Limits = Limits()) {
        self.limits = limits
    }

    var waitingCount: Int { waiting.count - head }

    /// A request has arrived. If the answer names a writer, the owner must call ``writerBecameFree(_:)`` for it next.
    mutating func requestArrived(_ item: Item, project: Int32, events: Int, bytes: Int, now: ContinuousClock.Instant) -> Admission {
        if isStopping { return .stopping }
        let held = projects[project]?.bytes ?? 0
        projects[project] = Project(bytes: held, lastArrival: now)
        projects = projects.filter { $0.value.bytes > 0 || $0.value.lastArrival + limits.projectActivity > now }
        // With nothing held, a request of any size is admitted: its size has been limited before.
        if heldBytes > 0 {
            // While other projects are active, one project may hold at most half of the budget, unless a single request is larger.
            if projects.count > 1, held > 0, held + bytes > limits.heldBytes / 2 { return .projectBusy }
            if heldBytes + bytes > limits.heldBytes { return .overloaded }
        }
        waiting.append(Waiting(item: item, project: project, events: events, bytes: bytes))
        heldBytes += bytes
        projects[project]?.bytes += bytes
        guard let writer = idleWriters.popLast() else { return .waiting }
        return .commit(writer: writer)
    }

    /// Whether there is room for a request of so many bytes; an estimate, since its size in memory is known only after scanning.
    func hasRoom(for bytes: Int) -> Bool { heldBytes == 0 || heldBytes + bytes <= limits.heldBytes }

    /// A writer has nothing to do: at its start, and after each group, committed or not.
    mutating func writerBecameFree(_ writer: Int) -> Work {
        for request in committing.removeValue(forKey: writer) ?? [] {
            heldBytes -= request.bytes
            projects[request.project]?.bytes -= request.bytes
        }
        let group = takeGroup()
        if !group.isEmpty {
            committing[writer] = group
            return .commit(group.map(\.item))
        }
        if isStopping { return .end }
        idleWriters.append(writer)
        return .wait
    }

    /// No further request is taken; what waits is still committed.
    ///
    /// - Returns: The idle writers, which must be woken so that they end.
    mutating func stopRequested() -> [Int] {
        isStopping = true
        defer { idleWriters = [] }
        return idleWriters
    }

    private mutating func takeGroup() -> [Waiting] {
        var (end, events, bytes) = (head, 0, 0)
        while end < waiting.count, let next = waiting[end] {
            events += next.events
            bytes += next.bytes
            if end > head, events > limits.groupEvents || bytes > limits.groupBytes { break }
            end += 1
        }
        let group = waiting[head..<end].compactMap { $0 }
        for taken in head..<end { waiting[taken] = nil }
        head = end
        // The cost for each request is constant on average: no more requests are moved than have been taken since the last time.
        if head * 2 >= waiting.count {
            waiting.removeFirst(head)
            head = 0
        }
        return group
    }
}
