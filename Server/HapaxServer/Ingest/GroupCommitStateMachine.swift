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
        /// It waits for a writer to come free.
        case waiting
        /// The writer was free and has a group now.
        case commit(writer: Int)
        /// Refused: more would be held than may be.
        case overloaded
        /// Refused: its project alone holds so much that others would find no room.
        case projectBusy
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
        var project: Int32
        var events: Int
        var bytes: Int
    }

    /// What one project holds, and when it last asked for something.
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

    /// A request has arrived. If a writer is named, it must now be given ``writerBecameFree(_:)``'s answer.
    mutating func requestArrived(_ item: Item, project: Int32, events: Int, bytes: Int, now: ContinuousClock.Instant) -> Admission {
        if isStopping { return .stopping }
        let held = projects[project]?.bytes ?? 0
        projects[project] = Project(bytes: held, lastArrival: now)
        projects = projects.filter { $0.value.bytes > 0 || $0.value.lastArrival + limits.projectActivity > now }
        // An empty house takes any single request: its size has been limited before.
        if heldBytes > 0 {
            // Half is enough for one as long as there are others; alone it may have all.
            if projects.count > 1, held > 0, held + bytes > limits.heldBytes / 2 { return .projectBusy }
            if heldBytes + bytes > limits.heldBytes { return .overloaded }
        }
        waiting.append(Waiting(item: item, project: project, events: events, bytes: bytes))
        heldBytes += bytes
        projects[project]?.bytes += bytes
        guard let writer = idleWriters.popLast() else { return .waiting }
        return .commit(writer: writer)
    }

    /// Whether a request of so many bytes would find room, as far as that can be said before it is taken apart.
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
    /// - Returns: The writers that wait and must be told to end.
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
        // Amortised: what is moved has been passed by at least as many.
        if head * 2 >= waiting.count {
            waiting.removeFirst(head)
            head = 0
        }
        return group
    }
}
