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

        mutating func take(_ begunOfAll: inout Int) -> Item {
            let item = waiting[head]
            head += 1
            if begun > 0 { (begun, begunOfAll) = (begun - 1, begunOfAll - 1) }
            // Taken items are removed once they are half of the array, so the cost for each item is constant on average.
            if head * 2 >= waiting.count {
                waiting.removeFirst(head)
                head = 0
            }
            return item
        }
    }

    enum Admission: Equatable {
        /// It is its turn now, in this place.
        case works(place: Int)
        case waits
        /// The room for waiting that the project may fill is full.
        case refused
    }

    private let placesOfOne: Int
    private let maximumWaiting: Int
    private let maximumBegun: Int
    /// Places where nobody works; the last one is taken first.
    private var free: [Int]
    /// Items that gave way and wait for another turn: each keeps in memory what it has unpacked.
    private var begun = 0
    private(set) var waitingCount = 0
    /// The projects that work or wait.
    private var projects: [Int32: Project] = [:]
    /// The time used by each pausing project, where it is more than ``began``.
    private var debts: [Int32: Duration] = [:]
    private static var unlookedDebts: Int { 64 }
    /// The greatest time that a project had used when a turn of it began; only rises.
    private var began = Duration.zero

    /// - Parameters:
    ///   - places: Items that work at once.
    ///   - placesOfOne: Of these, how many one project may have.
    ///   - maximumWaiting: Items that wait at most, of all projects.
    ///   - maximumBegun: Items that have given way at once, at most; beyond them a turn lasts until its work is done.
    init(places: Int, placesOfOne: Int = .max, maximumWaiting: Int, maximumBegun: Int = .max) {
        free = (0..<max(places, 1)).reversed()
        self.placesOfOne = max(placesOfOne, 1)
        self.maximumWaiting = maximumWaiting
        self.maximumBegun = maximumBegun
    }

    mutating func arrived(_ item: Item, of project: Int32) -> Admission {
        let isItsTurn = !free.isEmpty && projects[project]?.working ?? 0 < placesOfOne
        if !isItsTurn, projects[project]?.waitingCount ?? 0 >= maximumWaiting - waitingCount { return .refused }
        enter(project)
        if isItsTurn {
            return .works(place: begins(project))
        }
        waitingCount += 1
        projects[project]?.waiting.append(item)
        return .waits
    }

    /// A turn is over.
    ///
    /// - Parameters:
    ///   - place: Where it was.
    ///   - used: How long it took.
    /// - Returns: Whose turn it is now, in the same place.
    mutating func ended(_ project: Int32, at place: Int, used: Duration) -> Item? {
        free.append(place)
        projects[project]?.working -= 1
        projects[project]?.used += used
        leaveIfIdle(project)
        return next()
    }

    private mutating func leaveIfIdle(_ project: Int32) {
        guard let idle = projects[project], idle.isIdle else { return }
        projects[project] = nil
        guard idle.used > began else { return }
        debts[project] = idle.used
        // A debt that is no more than the start of the others is none.
        if debts.count > Self.unlookedDebts { debts = debts.filter { $0.value > began } }
    }

    /// A turn offers to give way. If another project is to go first, its item waits for another turn; else the turn goes on.
    ///
    /// - Returns: Whose turn it is now, in the same place; nil if it goes on.
    mutating func gaveWay(_ item: Item, _ project: Int32, at place: Int, used: Duration) -> Item? {
        projects[project]?.used += used
        guard begun < maximumBegun, let other = candidate, other != project,
            projects[other]?.used ?? .zero < projects[project]?.used ?? .zero
        else { return nil }
        free.append(place)
        projects[project]?.working -= 1
        // It waits before the items of its project that have not begun.
        waitingCount += 1
        begun += 1
        projects[project]?.begun += 1
        if let head = projects[project]?.head { projects[project]?.waiting.insert(item, at: head) }
        return next()
    }

    /// Items stop waiting.
    ///
    /// - Returns: The items, in no order.
    mutating func withdrew(where stops: (Item) -> Bool) -> [Item] {
        var items: [Item] = []
        for (number, project) in projects {
            // Those that have begun and given way are not late.
            let first = project.head + project.begun
            let late = project.waiting[first...].filter(stops)
            guard !late.isEmpty else { continue }
            items += late
            waitingCount -= late.count
            projects[number]?.waiting.replaceSubrange(first..., with: project.waiting[first...].filter { !stops($0) })
            leaveIfIdle(number)
        }
        return items
    }

    /// The waiting project that has used the least time, and may have a further place.
    private var candidate: Int32? {
        var least: (number: Int32, used: Duration)?
        for (number, project) in projects where project.waitingCount > 0 && project.working < placesOfOne {
            if least.map({ (project.used, number) < ($0.used, $0.number) }) ?? true { least = (number, project.used) }
        }
        return least?.number
    }

    private mutating func next() -> Item? {
        guard !free.isEmpty, let number = candidate, let item = projects[number]?.take(&begun) else { return nil }
        waitingCount -= 1
        _ = begins(number)
        return item
    }

    /// Takes the place that was left last; there is one.
    private mutating func begins(_ project: Int32) -> Int {
        projects[project]?.working += 1
        began = max(began, projects[project]?.used ?? .zero)
        return free.removeLast()
    }

    private mutating func enter(_ project: Int32) {
        guard projects[project] == nil else { return }
        projects[project] = Project(used: max(debts.removeValue(forKey: project) ?? .zero, began))
    }
}
