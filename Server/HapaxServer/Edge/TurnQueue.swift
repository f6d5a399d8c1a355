/// Whose turn it is: of the projects that wait, the one that has used least, and of its requests the oldest.
///
/// A project alone may have all places. One that comes after a pause starts with what the least of the others has used: it goes first, and has
/// saved nothing up. A value without clock, I/O, lock or task. `Item` is whatever the owner wants back.
struct TurnQueue<Item> {
    private struct Project {
        var used = Duration.zero
        var working = 0
        var waiting: [Item] = []
        /// Items before this index have had their turn.
        var head = 0

        var isIdle: Bool { working == 0 && head == waiting.count }
    }

    enum Admission: Equatable {
        /// It is its turn now.
        case works
        case waits
        /// As many wait as may.
        case refused
    }

    private let places: Int
    private let maximumWaiting: Int
    private var working = 0
    private(set) var waitingCount = 0
    /// Those that work or wait.
    private var projects: [Int32: Project] = [:]

    /// - Parameters:
    ///   - places: Items that work at once.
    ///   - maximumWaiting: Items that wait at most, of all projects.
    init(places: Int, maximumWaiting: Int) {
        self.places = max(places, 1)
        self.maximumWaiting = maximumWaiting
    }

    mutating func arrived(_ item: Item, of project: Int32) -> Admission {
        if working == places, waitingCount >= maximumWaiting { return .refused }
        enter(project)
        if working < places {
            working += 1
            projects[project]?.working += 1
            return .works
        }
        waitingCount += 1
        projects[project]?.waiting.append(item)
        return .waits
    }

    /// A turn is over.
    ///
    /// - Parameter used: How long it took.
    /// - Returns: Whose turn it is now.
    mutating func ended(_ project: Int32, used: Duration) -> Item? {
        working -= 1
        projects[project]?.working -= 1
        projects[project]?.used += used
        if projects[project]?.isIdle == true { projects[project] = nil }
        return next()
    }

    /// The same for a turn that goes on if nobody else is to go before it; else it waits for another one.
    ///
    /// - Returns: Whose turn it is now; nil if it goes on.
    mutating func gaveWay(_ item: Item, _ project: Int32, used: Duration) -> Item? {
        projects[project]?.used += used
        guard let other = candidate, other.key != project, other.value.used < projects[project]?.used ?? .zero else { return nil }
        working -= 1
        projects[project]?.working -= 1
        // Before those of its project that have not begun.
        waitingCount += 1
        if let place = projects[project]?.head { projects[project]?.waiting.insert(item, at: place) }
        return next()
    }

    private var candidate: (key: Int32, value: Project)? {
        projects.filter { $0.value.head < $0.value.waiting.count }.min { ($0.value.used, $0.key) < ($1.value.used, $1.key) }
    }

    private mutating func next() -> Item? {
        guard working < places, let candidate else { return nil }
        var project = candidate.value
        let item = project.waiting[project.head]
        project.head += 1
        if project.head == project.waiting.count {
            project.waiting.removeAll(keepingCapacity: true)
            project.head = 0
        }
        project.working += 1
        projects[candidate.key] = project
        working += 1
        waitingCount -= 1
        return item
    }

    private mutating func enter(_ project: Int32) {
        guard projects[project] == nil else { return }
        projects[project] = Project(used: projects.values.map(\.used).min() ?? .zero)
    }
}
