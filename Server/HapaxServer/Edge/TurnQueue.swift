/// Decides whose turn it is: that of the waiting project that has used the least time, and of its oldest request.
///
/// A project alone may have all places. After a pause a project's time starts at that of the latest turn's beginning, or at its own if that is
/// more, so that a pause neither saves time nor cancels a debt. A project may fill half of the room for waiting that others have left, so that
/// there is always some for a further project. A value without clock, I/O, lock or task. `Item` is whatever the owner wants back.
struct TurnQueue<Item> {
    private struct Project {
        var used = Duration.zero
        var working = 0
        var waiting: [Item] = []
        /// Items before this index have had their turn.
        var head = 0
        /// How many waiting items have begun and given way; they come before the others.
        var begun = 0

        var isIdle: Bool { working == 0 && waitingCount == 0 }
        var waitingCount: Int { waiting.count - head }
    }

    enum Admission: Equatable {
        /// It is its turn now.
        case works
        case waits
        /// The room for waiting that the project may fill is full.
        case refused
    }

    private let places: Int
    private let placesOfOne: Int
    private let maximumWaiting: Int
    private let maximumBegun: Int
    private var working = 0
    /// Items that gave way and wait for another turn: each keeps in memory what it has unpacked.
    private var begun = 0
    private(set) var waitingCount = 0
    /// The projects that work or wait.
    private var projects: [Int32: Project] = [:]
    /// The time used by each pausing project, where it is more than ``began``.
    private var debts: [Int32: Duration] = [:]
    /// The greatest time that a project had used when a turn of it began; only rises.
    private var began = Duration.zero

    /// - Parameters:
    ///   - places: Items that work at once.
    ///   - placesOfOne: Of these, how many one project may have.
    ///   - maximumWaiting: Items that wait at most, of all projects.
    ///   - maximumBegun: Items that have given way at once, at most; beyond them a turn lasts until its work is done.
    init(places: Int, placesOfOne: Int = .max, maximumWaiting: Int, maximumBegun: Int = .max) {
        self.places = max(places, 1)
        self.placesOfOne = max(placesOfOne, 1)
        self.maximumWaiting = maximumWaiting
        self.maximumBegun = maximumBegun
    }

    mutating func arrived(_ item: Item, of project: Int32) -> Admission {
        let isItsTurn = working < places && projects[project]?.working ?? 0 < placesOfOne
        if !isItsTurn, projects[project]?.waitingCount ?? 0 >= maximumWaiting - waitingCount { return .refused }
        enter(project)
        if isItsTurn {
            begins(project)
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
        leaveIfIdle(project)
        return next()
    }

    private mutating func leaveIfIdle(_ project: Int32) {
        guard let idle = projects[project], idle.isIdle else { return }
        projects[project] = nil
        debts[project] = idle.used
        debts = debts.filter { $0.value > began }
    }

    /// A turn offers to give way. If another project is to go first, its item waits for another turn; else the turn goes on.
    ///
    /// - Returns: Whose turn it is now; nil if it goes on.
    mutating func gaveWay(_ item: Item, _ project: Int32, used: Duration) -> Item? {
        projects[project]?.used += used
        guard begun < maximumBegun, let other = candidate, other.key != project, other.value.used < projects[project]?.used ?? .zero
        else { return nil }
        working -= 1
        projects[project]?.working -= 1
        // It waits before the items of its project that have not begun.
        waitingCount += 1
        begun += 1
        projects[project]?.begun += 1
        if let place = projects[project]?.head { projects[project]?.waiting.insert(item, at: place) }
        return next()
    }

    /// An item that has not begun stops waiting.
    ///
    /// - Returns: The item; nil if its turn has come.
    mutating func withdrew(_ project: Int32, where isIt: (Item) -> Bool) -> Item? {
        guard let waiting = projects[project], let place = waiting.waiting[waiting.head...].firstIndex(where: isIt) else { return nil }
        waitingCount -= 1
        defer { leaveIfIdle(project) }
        return projects[project]?.waiting.remove(at: place)
    }

    private var candidate: (key: Int32, value: Project)? {
        projects.filter { $0.value.waitingCount > 0 && $0.value.working < placesOfOne }
            .min { ($0.value.used, $0.key) < ($1.value.used, $1.key) }
    }

    private mutating func next() -> Item? {
        guard working < places, let candidate else { return nil }
        var project = candidate.value
        let item = project.waiting[project.head]
        project.head += 1
        if project.begun > 0 { (project.begun, begun) = (project.begun - 1, begun - 1) }
        // Taken items are removed once they are half of the array, so the cost for each item is constant on average.
        if project.head * 2 >= project.waiting.count {
            project.waiting.removeFirst(project.head)
            project.head = 0
        }
        projects[candidate.key] = project
        waitingCount -= 1
        begins(candidate.key)
        return item
    }

    private mutating func begins(_ project: Int32) {
        working += 1
        projects[project]?.working += 1
        began = max(began, projects[project]?.used ?? .zero)
    }

    private mutating func enter(_ project: Int32) {
        guard projects[project] == nil else { return }
        projects[project] = Project(used: max(debts.removeValue(forKey: project) ?? .zero, began))
    }
}
