import CoreMetrics
import HapaxModel

/// The client's metrics. Labels hold neither payloads nor keys, and no dimension takes values that a server may choose freely.
///
/// | Label | Kind | Dimension |
/// |---|---|---|
/// | `hapax.client.tracked` | counter: events committed to the queue, dead letters included | |
/// | `hapax.client.stored`, `hapax.client.duplicates` | counter: acknowledged events | |
/// | `hapax.client.dead_letters` | counter | `reason`: a known one, else `other` |
/// | `hapax.client.dropped` | counter | `reason` |
/// | `hapax.client.upload.attempts` | counter: requests made | |
/// | `hapax.client.upload.failures` | counter: of these, without a full acknowledgement | `kind` |
/// | `hapax.client.commit.failures` | counter: commits that failed and are tried again | |
/// | `hapax.client.upload.duration`, `hapax.client.commit.duration` | timer | |
/// | `hapax.client.queue.depth`, `hapax.client.queue.bytes` | gauge: events on disk that wait, and their bytes | |
struct ClientMetrics: Sendable {
    private let tracked: Counter
    private let stored: Counter
    private let duplicates: Counter
    private let deadLetters: CounterFamily
    private let dropped: CounterFamily
    private let attempts: Counter
    private let uploadFailures: CounterFamily
    private let commitFailures: Counter
    private let uploadDuration: CoreMetrics.Timer
    private let commitDuration: CoreMetrics.Timer
    private let depth: Gauge
    private let bytes: Gauge

    static let prefix = "hapax.client."

    init(factory: any MetricsFactory) {
        func counter(_ name: String) -> Counter { Counter(label: Self.prefix + name, factory: factory) }
        func family(_ name: String, _ dimension: String) -> CounterFamily {
            CounterFamily(label: Self.prefix + name, dimension: dimension, factory: factory)
        }
        tracked = counter("tracked")
        stored = counter("stored")
        duplicates = counter("duplicates")
        deadLetters = family("dead_letters", "reason")
        dropped = family("dropped", "reason")
        attempts = counter("upload.attempts")
        uploadFailures = family("upload.failures", "kind")
        commitFailures = counter("commit.failures")
        uploadDuration = CoreMetrics.Timer(label: Self.prefix + "upload.duration", factory: factory)
        commitDuration = CoreMetrics.Timer(label: Self.prefix + "commit.duration", factory: factory)
        depth = Gauge(label: Self.prefix + "queue.depth", factory: factory)
        bytes = Gauge(label: Self.prefix + "queue.bytes", factory: factory)
    }

    func committed(_ events: Int, in duration: Duration) {
        if events > 0 { tracked.increment(by: events) }
        commitDuration.recordNanoseconds(duration.nanoseconds)
    }

    func commitFailed() {
        commitFailures.increment()
    }

    func stored(_ count: Int) {
        if count > 0 { stored.increment(by: count) }
    }

    func duplicates(_ count: Int) {
        if count > 0 { duplicates.increment(by: count) }
    }

    func deadLetter(reason: String) {
        deadLetters.increment(by: 1, Self.known(reason))
    }

    /// - Parameter reason: One of this library's own.
    func dropped(_ count: Int, reason: String) {
        dropped.increment(by: count, reason)
    }

    func attempted(in duration: Duration, failure: String?) {
        attempts.increment()
        uploadDuration.recordNanoseconds(duration.nanoseconds)
        if let failure { uploadFailures.increment(by: 1, failure) }
    }

    func waiting(depth: Int64, bytes: Int64) {
        self.depth.record(depth)
        self.bytes.record(bytes)
    }

    /// What stands for a reason that this version does not know: a server must not be able to make dimensions.
    static let otherReason = "other"

    static func known(_ reason: String) -> String { deadLetterReasons.contains(reason) ? reason : otherReason }

    private static let deadLetterReasons = Set(
        EventProblem.Reason.allCases.map(\.rawValue) + RequestProblem.Code.allCases.map(\.rawValue)
            + Receipt.Outcome.allCases.map(\.rawValue) + [DeadLetter.changed.reason])
}

/// Counters that differ in one dimension, made when they are first needed.
private final class CounterFamily: Sendable {
    private let label: String
    private let dimension: String
    private let factory: any MetricsFactory
    private let counters = Locked<[String: Counter]>([:])

    init(label: String, dimension: String, factory: any MetricsFactory) {
        self.label = label
        self.dimension = dimension
        self.factory = factory
    }

    func increment(by count: Int, _ value: String) {
        if let counter = counters.withLock({ $0[value] }) { return counter.increment(by: count) }
        // The factory is the app's code, which may ask the client for something, and is not called under the lock.
        let made = Counter(label: label, dimensions: [(dimension, value)], factory: factory)
        let counter = counters.withLock { counters in
            if let first = counters[value] { return first }
            counters[value] = made
            return made
        }
        counter.increment(by: count)
    }
}

extension Duration {
    fileprivate var nanoseconds: Int64 { Int64(self / .nanoseconds(1)) }
}

extension AnswerClassifier.Answer {
    /// Why the attempt did not settle all it sent, as a name from a fixed set; nil if it did.
    var failureKind: String? {
        switch self {
        case .accepted(let results, _): results.contains { $0.outcome == .retry } ? "asked_to_retry" : nil
        case .batchRefused(let code): code.rawValue
        case .tryLater(let failure, _), .pause(let failure), .tooMuch(let failure), .blocked(let failure): failure.kind
        }
    }
}

extension DeliveryFailure {
    /// A name from a fixed set. Statuses that are not our server's word are distinguished by their class only.
    var kind: String {
        switch self {
        case .transport(let failure): failure.kind
        case .status(_, let code?): code
        case .status(let status, nil): (100..<600).contains(status) ? "status_\(status / 100)xx" : "status_other"
        case .notAReceipt: "not_a_receipt"
        case .askedToRetry: "asked_to_retry"
        case .queue: "queue"
        case .noBackgroundTime: "no_background_time"
        case .consentPending: "consent_pending"
        case .notOpen: "not_open"
        case .shutDown: "shut_down"
        case .cancelled: "cancelled"
        case .outOfTime: "out_of_time"
        }
    }
}

extension TransportFailure {
    fileprivate var kind: String {
        switch self {
        case .unknownHost: "unknown_host"
        case .cannotConnect: "cannot_connect"
        case .timedOut: "timed_out"
        case .tls: "tls"
        case .cut: "cut"
        case .answerTooLarge: "answer_too_large"
        case .aborted: "aborted"
        case .outOfResources: "out_of_resources"
        case .other: "transport"
        }
    }
}
