import HapaxModel

/// What the server has done since it started, for `GET /metrics`.
///
/// The counters of events balance: `received = stored + duplicate + conflict + rejected + expired + retry` (I12).
package final class ServerMetrics: Sendable {
    private let counts = Locked(Counts())

    private struct Counts {
        /// By project.
        var events: [Int32: Events] = [:]
        /// Of senders without numbers, by project and protocol.
        var senders: [Int32: [String: [Int]]] = [:]
        var refusals: [RequestProblem.Code: Int] = [:]
        /// By method and route.
        var requests: [String: Histogram] = [:]
        var received = 0
        var commits = Histogram.durations
        var groups = Histogram.groups
        var failedGroups = 0
        var derivedWithOtherContent = 0
        var lastUpkeep: Timestamp?
    }

    private struct Events {
        var outcomes = [Int](repeating: 0, count: Receipt.Outcome.allCases.count)
        var rejections: [String: Int] = [:]
    }

    package init() {}

    func groupCommitted(records: Int, in duration: Duration, derivedWithOtherContent: Int = 0) {
        counts.withLock { counts in
            counts.derivedWithOtherContent += derivedWithOtherContent
            counts.groups.observe(Double(records))
            counts.commits.observe(duration / .seconds(1))
        }
    }

    func groupFailed() {
        counts.withLock { $0.failedGroups += 1 }
    }

    func upkeepPerformed(at instant: Timestamp) {
        counts.withLock { $0.lastUpkeep = instant }
    }

    /// When upkeep last succeeded; nil if it has not yet.
    var lastUpkeep: Timestamp? { counts.withLock { $0.lastUpkeep } }

    /// - Parameter via: The protocol of a sender without numbers; nil for an install.
    func answered(_ outcome: IngestOutcome, of projectID: Int32, via: String? = nil) {
        counts.withLock { counts in
            counts.received += outcome.received
            var events = counts.events.removeValue(forKey: projectID) ?? Events()
            events.outcomes[Receipt.Outcome.stored.index] += outcome.stored
            for result in outcome.results {
                events.outcomes[result.outcome.index] += 1
                if result.outcome == .rejected, let reason = result.reason { events.rejections[reason, default: 0] += 1 }
            }
            counts.events[projectID] = events
            guard let via else { return }
            var outcomes = counts.senders[projectID]?.removeValue(forKey: via) ?? Events().outcomes
            outcomes[Receipt.Outcome.stored.index] += outcome.stored
            for result in outcome.results { outcomes[result.outcome.index] += 1 }
            counts.senders[projectID, default: [:]][via] = outcomes
        }
    }

    /// - Parameter route: The method and the route's pattern; nil where there is none.
    func answered(_ route: String?, after duration: Duration) {
        counts.withLock { $0.requests[route ?? "other", default: .durations].observe(duration / .seconds(1)) }
    }

    func refused(_ code: RequestProblem.Code) {
        counts.withLock { $0.refusals[code, default: 0] += 1 }
    }

    /// - Parameter projects: Their names. Each of them has a line, so that its first event is seen as a change.
    func write(to exposition: inout Exposition, projects: [Int32: String]) {
        let counts = counts.withLock { $0 }
        let projects = projects.sorted { $0.value < $1.value }
        exposition.add(.counter, "hapax_events_received_total", "Events in answered requests.", counts.received)
        exposition.add(
            .counter, "hapax_events_total", "Events by project and outcome.",
            projects.flatMap { id, name in
                Receipt.Outcome.allCases.map { outcome in
                    ([("project", name), ("outcome", outcome.rawValue)], Double(counts.events[id]?.outcomes[outcome.index] ?? 0))
                }
            })
        exposition.add(
            .counter, "hapax_sender_events_total", "Events of senders without numbers, by project, protocol and outcome.",
            projects.flatMap { id, name in
                (counts.senders[id] ?? [:]).sorted { $0.key < $1.key }.flatMap { via, outcomes in
                    Receipt.Outcome.allCases.map { outcome in
                        ([("project", name), ("via", via), ("outcome", outcome.rawValue)], Double(outcomes[outcome.index]))
                    }
                }
            })
        exposition.add(
            .counter, "hapax_events_rejected_total", "Rejected events by project and reason.",
            projects.flatMap { id, name in
                EventProblem.Reason.allCases.map { reason in
                    ([("project", name), ("reason", reason.rawValue)], Double(counts.events[id]?.rejections[reason.rawValue] ?? 0))
                }
            })
        exposition.add(
            .counter, "hapax_requests_refused_total", "Requests refused as a whole, by code.",
            RequestProblem.Code.allCases.map { ([("code", $0.rawValue)], Double(counts.refusals[$0] ?? 0)) })
        exposition.add(
            "hapax_request_duration_seconds", "From a request's header until its answer begins, by route.",
            counts.requests.sorted { $0.key < $1.key }.map { ([("route", $0.key)], $0.value) })
        exposition.add(
            "hapax_commit_duration_seconds", "The store's transactions, with what had to be compared.", [([], counts.commits)])
        exposition.add("hapax_group_events", "Distinct events in a transaction.", [([], counts.groups)])
        exposition.add(.counter, "hapax_groups_failed_total", "Transactions whose requests were answered 503.", counts.failedGroups)
        exposition.add(
            .counter, "hapax_derived_other_content_total", "Duplicates under a derived id whose content differs from what is stored.",
            counts.derivedWithOtherContent)
        exposition.add(
            .gauge, "hapax_upkeep_timestamp_seconds", "When upkeep last succeeded.",
            counts.lastUpkeep.map { Double($0.unixMilliseconds / 1_000) })
    }
}

extension Receipt.Outcome {
    fileprivate var index: Int {
        switch self {
        case .stored: 0
        case .duplicate: 1
        case .conflict: 2
        case .rejected: 3
        case .expired: 4
        case .retry: 5
        }
    }
}
