import CoreMetrics
import HapaxModel
import Logging

/// Tells subscribers, metrics and the log what has become of events.
///
/// Whoever made a commit calls it, after the commit and on its own thread: never `track`, and nothing here waits.
final class EventReporter: Sendable {
    let hub: DeliveryHub
    private let metrics: ClientMetrics
    private let logger: Logger?
    private let now: @Sendable () -> Duration
    private let counters: @Sendable () -> QueueCounters
    /// The drops that have been reported.
    private let told: Locked<[String: Int64]>
    /// Dead letters that were made as events were stored, and that no flush has reported.
    private let deadLettersOfIntake = Locked(0)
    /// What goes wrong at the moment.
    private let episodes = Locked(Episodes())
    /// Of another server or write key, as far as that has been reported.
    private let otherFiles = Locked(0)

    /// - Parameters:
    ///   - now: A monotonic clock.
    ///   - counters: Of the client's own queue, as its latest commit left them.
    init(
        factory: any MetricsFactory, hub: DeliveryHub = DeliveryHub(), logger: Logger? = nil,
        now: @escaping @Sendable () -> Duration = { .zero },
        counters: @escaping @Sendable () -> QueueCounters
    ) {
        metrics = ClientMetrics(factory: factory)
        self.hub = hub
        self.logger = logger
        self.now = now
        self.counters = counters
        told = Locked(counters().dropped)
    }

    /// Events have been committed to the queue, or, if they break a limit or their id is another's, to the dead letters.
    ///
    /// - Parameter appended: What became of each; nil if all of them wait.
    func committed(_ events: [PreparedEvent], _ appended: QueueFile.Appended?, in duration: Duration) {
        metrics.committed(appended?.created ?? events.count, in: duration)
        let deadLetters = appended?.deadLetters.sorted { $0.key < $1.key } ?? []
        if !deadLetters.isEmpty { deadLettersOfIntake.withLock { $0 += deadLetters.count } }
        buried(deadLetters.map(\.value.reason))
        hub.publish { deadLetters.map { .rejected(events[$0.key].id, reason: $0.value.reason, detail: $0.value.detail) } }
        countersChanged()
    }

    /// How many events became dead letters as they were stored, since this was last asked.
    func takeDeadLettersOfIntake() -> Int {
        deadLettersOfIntake.withLock { count in
            defer { count = 0 }
            return count
        }
    }

    /// Looks for what has been dropped since it last looked: refused at intake, or removed by the quota, by a purge, with a damaged file.
    ///
    /// The counters name the reasons, which are constants of this library: they become dimensions of the metrics.
    func countersChanged() {
        let counters = counters()
        metrics.waiting(depth: counters.waiting, bytes: counters.bytes)
        let dropped = told.withLock { told in
            // Taken for lost and found again is reported as what becomes of it; lost for good it is not reported twice.
            let now = counters.dropped
            let dropped = now.filter { $0.value > told[$0.key] ?? 0 }.mapValues { Int($0) }
            defer { told.merge(now) { max($0, $1) } }
            return dropped.map { (reason: $0.key, count: $0.value - Int(told[$0.key] ?? 0)) }.sorted { $0.reason < $1.reason }
        }
        for (reason, count) in dropped { metrics.dropped(count, reason: reason) }
        log(.drop, dropped)
        logEnds()
        hub.publish { dropped.map { .dropped(reason: $0.reason, count: $0.count) } }
    }

    /// Events were refused, which no commit has counted yet: where commits fail none may for long.
    func refused(_ counts: [String: Int64]) { log(.drop, counts.map { (reason: $0.key, count: Int($0.value)) }, isCounted: false) }

    private func buried(_ reasons: [String]) {
        guard !reasons.isEmpty else { return }
        for reason in reasons { metrics.deadLetter(reason: reason) }
        let counts = Dictionary(reasons.map { (ClientMetrics.known($0), 1) }, uniquingKeysWith: +)
        log(.deadLetter, counts.map { (reason: $0.key, count: $0.value) })
    }

    // MARK: - The log

    /// What somebody asked for is no trouble, and a service that has no client says so itself.
    private static let silent: Set = [
        DropReason.optedOut.rawValue, DropReason.enricher.rawValue, DropReason.disabled.rawValue, "purged",
    ]

    /// - Parameter isCounted: Whether the same events are not reported again.
    private func log(_ trouble: Episodes.Kind.Trouble, _ counts: [(reason: String, count: Int)], isCounted: Bool = true) {
        guard let logger else { return }
        for (reason, count) in counts where !Self.silent.contains(reason) {
            let kind = Episodes.Kind(trouble: trouble, reason: reason)
            let now = now()
            guard episodes.withLock({ $0.happened(kind, events: isCounted ? count : 0, now: now) }) else { continue }
            let metadata: Logger.Metadata = ["hapax.reason": "\(reason)", "hapax.events": "\(count)"]
            switch trouble {
            case .drop: logger.warning("Events are dropped", metadata: metadata)
            case .deadLetter: logger.warning("Events become dead letters", metadata: metadata)
            }
        }
    }

    private func logEnds() {
        guard let logger else { return }
        let now = now()
        for (kind, events) in episodes.withLock({ $0.ended(now: now) }) {
            let metadata: Logger.Metadata = ["hapax.reason": "\(kind.reason)", "hapax.events": "\(events)"]
            switch kind.trouble {
            case .drop: logger.notice("Events are no longer dropped", metadata: metadata)
            case .deadLetter: logger.notice("Events no longer become dead letters", metadata: metadata)
            }
        }
    }

    /// Another part has reported drops that the counters do not know yet.
    func hasReported(_ dropped: [String: Int64]) {
        told.withLock { $0.merge(dropped, uniquingKeysWith: +) }
    }

    /// Events are lost that no counter will ever know, with the client whose subscribers would learn of them.
    func lost(_ count: Int, _ failure: StorageFailure?) {
        metrics.dropped(count, reason: "lost")
        logger?.error(
            "Events that could not be stored are lost with their client",
            metadata: ["hapax.events": "\(count)", "hapax.failure": "\(failure.map(String.init(describing:)) ?? "none")"])
    }

    /// Files of other servers or write keys lie in the directory: they are left alone.
    func othersFound(_ count: Int) {
        guard count > otherFiles.withLock({ found in (found, found = max(found, count)).0 }) else { return }
        logger?.warning(
            "Events wait in the queue's directory for another server or write key; a configuration's `replaces` says that this one sends them",
            metadata: ["hapax.files": "\(count)"])
    }

    func fileIsUnusable(_ number: Int, _ failure: StorageFailure) {
        logger?.warning(
            "A queue file that nobody owns cannot be used", metadata: ["hapax.file": "\(number)", "hapax.failure": "\(failure)"])
    }

    func identityIsUnknown(_ failure: StorageFailure) {
        logger?.error(
            "Whom events concern cannot be read: where they do not say it, they concern a new anonymous id",
            metadata: ["hapax.failure": "\(failure)"])
    }

    func consentIsUnreadable(_ failure: StorageFailure) {
        logger?.error(
            "The user's consent cannot be read: what was known before holds until it can", metadata: ["hapax.failure": "\(failure)"])
    }

    func consentIsNotKept(_ failure: ConsentError) {
        logger?.error("A change of the user's consent is lost", metadata: ["hapax.failure": "\(failure)"])
    }

    func projectsAreUnreadable(_ failure: StorageFailure) {
        logger?.error(
            "Which project each key is for cannot be read or noted: what waits for a key that was rotated is not sent",
            metadata: ["hapax.failure": "\(failure)"])
    }

    /// - Parameters:
    ///   - isFirst: Whether the commit before did not fail.
    ///   - events: So many wait in memory.
    func commitFailed(_ failure: StorageFailure, isFirst: Bool, events: Int) {
        metrics.commitFailed()
        guard isFirst else { return }
        logger?.warning(
            "Events cannot be stored and wait in memory",
            metadata: ["hapax.failure": "\(failure)", "hapax.events": "\(events)"])
    }

    /// Commits have failed, and one has succeeded.
    func commitsSucceedAgain(after failures: Int) {
        logger?.notice("Events are stored again", metadata: ["hapax.failures": "\(failures)"])
    }

    /// Events have left their queue, sent or not.
    ///
    /// - Parameter scope: Whether it was this client that took them.
    func settled(_ settlements: [Settlement], _ scope: DeliveryScope = .own) {
        var (stored, duplicates, deadLetters) = (0, 0, [String]())
        for settlement in settlements {
            switch settlement.fate {
            case .stored: stored += 1
            case .duplicate: duplicates += 1
            case .deadLetter(let reason, _): deadLetters.append(reason)
            }
        }
        metrics.stored(stored)
        metrics.duplicates(duplicates)
        buried(deadLetters)
        hub.publish(scope) { settlements.map(\.delivery) }
        countersChanged()
    }

    /// A request has been made.
    func attempted(in duration: Duration, answer: AnswerClassifier.Answer) {
        metrics.attempted(in: duration, failure: answer.failureKind)
    }

    /// Subscribers read what has been reported, and then the end.
    func end() {
        hub.end()
    }
}

extension Settlement {
    fileprivate var delivery: EventDelivery {
        switch fate {
        case .stored: .stored(event.id)
        case .duplicate: .duplicate(event.id)
        case .deadLetter(let reason, let detail): .rejected(event.id, reason: reason, detail: detail)
        }
    }
}
