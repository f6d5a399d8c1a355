import HapaxModel

/// Sends what ended processes have left in the directory: file by file, each under its own install id, with the delivery's own step.
///
/// A file whose lock is free belongs to nobody. It is held while it is sent, and let go as soon as a step says wait.
package actor Leftovers {
    private let executor = BlockingExecutor(label: "hapax.leftovers")
    private let own: QueueFile
    private let delivery: Delivery
    /// Whose files may be sent: of the client's server and key, and of those that these replace.
    private let destinations: Set<EventID>
    /// Names of the own server and key.
    private let names: Set<EventID>
    /// Files of other servers and keys that have been told so in this process.
    private var moved: Set<Int> = []
    /// And of keys of the same project.
    private let projects: ProjectNotes
    private let clock: any ClientClock
    private let reporter: EventReporter
    private let consent: @Sendable () -> KeptConsent
    private let makeEvent: Delivery.MakeEvent
    private var running: Task<Look, Never>?
    /// Those that could not be opened: reported once.
    private var unusable: [Int: StorageFailure] = [:]
    private var isStopped = false
    /// Whether the server has been asked for the project.
    private var hasAsked = false

    /// What a look at the directory came to.
    package struct Look: Sendable {
        package var counts = DeliveryCounts()
        /// Why it ended before all was sent.
        package var failure: DeliveryFailure?
        /// Files of other servers and keys that hold something.
        package var others = 0
        /// Files that turned out to be damaged.
        package var damages: [QueueDamage] = []
    }

    init(
        beside own: QueueFile, _ delivery: Delivery, of destinations: Set<EventID>, named names: Set<EventID>, _ projects: ProjectNotes,
        clock: any ClientClock,
        reporter: EventReporter, consent: @escaping @Sendable () -> KeptConsent, makeEvent: @escaping Delivery.MakeEvent
    ) {
        self.own = own
        self.delivery = delivery
        (self.destinations, self.names) = (destinations, names)
        self.projects = projects
        self.clock = clock
        self.reporter = reporter
        self.consent = consent
        self.makeEvent = makeEvent
    }

    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Goes through the directory once. Called while under way, it waits for that and goes through it once more: a file may have been given up
    /// behind that look.
    ///
    /// - Parameters:
    ///   - isManual: Whether somebody asked: then a rest is cut short.
    ///   - permission: Asked before each request.
    func send(isManual: Bool, permission: (@Sendable () -> RequestPermission)? = nil) async -> Look {
        while let running { _ = await running.value }
        let task = Task {
            // Here, and not by who waits for it: another one may wait as well.
            defer { running = nil }
            return await look(isManual: isManual, permission)
        }
        running = task
        return await task.value
    }

    /// The same for a timer: not while one is under way, or a rest.
    func sendIfDue() async {
        guard running == nil, await !delivery.isResting else { return }
        _ = await send(isManual: false)
    }

    func stop() async {
        isStopped = true
        _ = await running?.value
    }

    private func look(isManual: Bool, _ permission: (@Sendable () -> RequestPermission)?) async -> Look {
        var look = Look()
        let numbers: [Int]
        do throws(StorageFailure) { numbers = try own.directory.numbers() } catch {
            // Not none: what others have left may wait there.
            look.failure = .queue(error)
            return look
        }
        if let failure = await nameProject(numbers, isManual: isManual, permission) {
            look.failure = failure
            return look
        }
        let destinations = destinations.union(projects.destinations)
        for number in numbers where number != own.number && !isStopped {
            let note = FileClaim.note(of: number, in: own.directory)
            guard note.map({ destinations.contains($0.destination) }) ?? true else {
                if note?.isClean == false, note?.isNew == false { look.others += 1 }
                continue
            }
            guard note?.isClean != true, look.failure == nil, let file = open(number, of: destinations) else { continue }
            if let note, !names.contains(note.destination), !projects.destinations.contains(note.destination), moved.insert(number).inserted
            {
                // A queue that cannot note it sends its events all the same; then the books name as missing what the other server has.
                try? file.noteDeliveredElsewhere()
            }
            let next = await send(file, isManual: isManual, permission, &look)
            if let damage = file.latestDamage { look.damages.append(damage) }
            file.close()
            if case .queue(let failure)? = look.failure {
                (unusable[number], look.failure) = (failure, nil)
                reporter.fileIsUnusable(number, failure)
                continue
            }
            if next != .drained, next != .onlyHeld, look.failure == nil {
                if next == .held || next == .denied { break }
                look.failure = .shutDown
            }
        }
        reporter.othersFound(look.others)
        return look
    }

    /// What waits for another key may be for the same project, if the server says so. Until something is tracked under the new key no receipt
    /// does, so it is asked by an envelope without events: once, and whenever somebody asks.
    ///
    /// - Returns: Why that failed.
    private func nameProject(
        _ numbers: [Int], isManual: Bool, _ permission: (@Sendable () -> RequestPermission)?
    ) async -> DeliveryFailure? {
        guard isManual || !hasAsked, !projects.isNamed else { return nil }
        let others = numbers.compactMap { FileClaim.note(of: $0, in: own.directory) }
        guard others.contains(where: { !destinations.contains($0.destination) && !$0.isClean && !$0.isNew }) else { return nil }
        hasAsked = true
        let step = await delivery.step(own, isManual: isManual, asksProject: true, permission: permission)
        switch step.next {
        case .wait, .pause, .stopped: return step.failure ?? .shutDown
        default: return nil
        }
    }

    /// - Returns: nil if its owner lives, or it cannot be used: that keeps the others from nothing.
    private func open(_ number: Int, of destinations: Set<EventID>) -> QueueFile? {
        do throws(QueueOpenError) {
            let claim = try FileClaim(number, in: own.directory, of: destinations)
            let file = try QueueFile(claim, durability: own.durability, keepsDamagedFiles: own.keepsDamagedFiles)
            unusable[number] = nil
            return file
        } catch {
            guard case .unusable(let failure) = error else { return nil }
            if unusable.updateValue(failure, forKey: number) != failure { reporter.fileIsUnusable(number, failure) }
            return nil
        }
    }

    private func send(
        _ file: QueueFile, isManual: Bool, _ permission: (@Sendable () -> RequestPermission)?, _ look: inout Look
    ) async -> Delivery.Step.Next {
        endSession(of: file)
        while true {
            let step = await delivery.step(file, isManual: isManual, permission: permission)
            look.counts = look.counts + step.counts
            if step.next == .more { continue }
            switch step.next {
            case .wait, .pause, .stopped: look.failure = step.failure ?? .shutDown
            default: if step.failure == .consentPending { look.failure = step.failure }
            }
            return step.next
        }
    }

    /// No other client will end the session of an app that has ended. Of one that cannot be stored the next look tries again.
    private func endSession(of file: QueueFile) {
        let consent = consent()
        // It may be of the time that this is about.
        guard (try? file.decidePending(consent)) != nil, let session = try? file.openSession() else { return }
        if consent.consent == .denied {
            // To somebody who does not want events none is owed.
            try? file.removeSession(start: session.start)
        } else {
            let end = makeEvent(
                AutomaticEvent.appEnd.rawValue, SessionMarker.endID(session.start), session.properties,
                Delivery.Origin(isOwn: false, time: session.lastActivity, distinctID: session.distinctID))
            if let end { _ = try? file.append([end], consent: consent, ending: [session.start]) }
        }
    }
}
