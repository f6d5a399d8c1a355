import HapaxClient
import HapaxModel

/// Where an import's dead letters go: to the queue, or, if another process holds that, to one queue beside it.
final class ImportLetters: Sendable {
    private let configuration: EventClient.Configuration
    private let endpoint: Endpoint
    private let clock = SystemClock()
    /// Held until the import ends: another one for each burial would come to thousands.
    private let spool = Locked<EventQueue?>(nil)

    init(configuration: EventClient.Configuration, endpoint: Endpoint) {
        self.configuration = configuration
        self.endpoint = endpoint
    }

    /// Durable on return, through a power cut. One call at a time.
    ///
    /// - Throws: ``Problem``.
    func keep(_ letters: [DeadLetter]) throws(Problem) {
        let queue: EventQueue
        if let spool = spool.withLock({ $0 }) { queue = spool } else { queue = try open() }
        defer { if !queue.isSpool { queue.close() } }
        guard !queue.isFull else {
            throw Problem(
                queue.books.depth == 0
                    ? "the queue is full of dead letters; export and purge them"
                    : """
                    the queue is full: \(queue.books.depth) events wait and \(queue.books.letters) dead letters lie in it; deliver the events \
                    (hapax flush), or export and purge the dead letters
                    """)
        }
        // What it holds then is ours alone; otherwise it stays known as the one of whoever filled it.
        if queue.books.depth == 0, queue.books.letters == 0, !queue.directory.holdsUnsalvaged { queue.isRedirected(to: endpoint) }
        do {
            try queue.adoptDeadLetters(letters, growing: true)
            try queue.flushDrive()
        } catch {
            let advice = error.isDiskFull ? "; make room, as by exporting and purging those that are there" : ""
            throw Problem("a dead letter cannot be kept: \(StorageFailure(error))\(advice)")
        }
    }

    func close() {
        spool.withLock { spool in
            spool?.close()
            spool = nil
        }
    }

    /// Takes the queue for a moment only: an import may take hours, and others want to work on it meanwhile.
    private func open() throws(Problem) -> EventQueue {
        let queue: EventQueue
        do throws(QueueOpenError) {
            queue = try EventQueue.open(
                configuration.queueDirectory, whenTaken: .spool, durability: .power, quota: configuration.quota, clock: clock)
        } catch {
            let reason =
                switch error {
                case .taken: "another process works on the queue, and no more can be begun beside it"
                case .unusable(let failure): "the queue cannot be used: \(failure)"
                }
            throw Problem("a dead letter cannot be kept: \(reason)")
        }
        if queue.isSpool { spool.withLock { $0 = queue } }
        return queue
    }

    /// What to tell whoever wants to know why an import ended.
    struct Problem: Error, CustomStringConvertible {
        let description: String

        init(_ description: String) { self.description = description }
    }
}
