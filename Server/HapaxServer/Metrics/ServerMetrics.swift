import HapaxModel

/// What the server has done since it started, for `GET /metrics` in Prometheus' text format.
///
/// The counters of events balance: `received = stored + duplicate + conflict + rejected + expired + retry` (I12).
package final class ServerMetrics: Sendable {
    private let counts = Locked(Counts())

    private struct Counts {
        var outcomes = [Int](repeating: 0, count: Receipt.Outcome.allCases.count)
        var refusals: [RequestProblem.Code: Int] = [:]
        var received = 0
        var groups = 0
        var groupRecords = 0
        var failedGroups = 0
        var derivedWithOtherContent = 0
        var lastUpkeep: Timestamp?
    }

    package init() {}

    func groupCommitted(records: Int, derivedWithOtherContent: Int = 0) {
        counts.withLock { counts in
            counts.derivedWithOtherContent += derivedWithOtherContent
            counts.groups += 1
            counts.groupRecords += records
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

    func answered(_ outcome: IngestOutcome) {
        counts.withLock { counts in
            counts.received += outcome.received
            counts.outcomes[Receipt.Outcome.stored.index] += outcome.stored
            for result in outcome.results { counts.outcomes[result.outcome.index] += 1 }
        }
    }

    func refused(_ code: RequestProblem.Code) {
        counts.withLock { $0.refusals[code, default: 0] += 1 }
    }

    /// All metrics as text (https://prometheus.io/docs/instrumenting/exposition_formats/).
    package func exposition(crowdedMonths: [CrowdedMonth] = []) -> String { exposition(crowdedMonths: crowdedMonths, certificate: nil) }

    func exposition(crowdedMonths: [CrowdedMonth], certificate: Certificate?) -> String {
        let counts = counts.withLock { $0 }
        var text = ""
        func metric(_ name: String, _ help: String, type: String = "counter", _ samples: [(label: String, value: Int)]) {
            text += "# HELP \(name) \(help)\n# TYPE \(name) \(type)\n"
            for sample in samples { text += "\(name)\(sample.label) \(sample.value)\n" }
        }
        metric("hapax_events_received_total", "Events in answered requests.", [("", counts.received)])
        metric(
            "hapax_events_total", "Events by outcome.",
            Receipt.Outcome.allCases.map { (#"{outcome="\#($0.rawValue)"}"#, counts.outcomes[$0.index]) })
        metric(
            "hapax_requests_refused_total", "Requests refused as a whole, by code.",
            RequestProblem.Code.allCases.map { (#"{code="\#($0.rawValue)"}"#, counts.refusals[$0] ?? 0) })
        metric("hapax_groups_committed_total", "Transactions of the store.", [("", counts.groups)])
        metric("hapax_group_records_total", "Distinct events in those transactions.", [("", counts.groupRecords)])
        metric(
            "hapax_derived_other_content_total", "Duplicates under a derived id whose content differs from what is stored.",
            [("", counts.derivedWithOtherContent)])
        metric("hapax_groups_failed_total", "Groups answered with 503.", [("", counts.failedGroups)])
        metric(
            "hapax_crowded_month_events", "Events of months to come that have no partition since too many were stored for them.",
            type: "gauge",
            crowdedMonths.map { (#"{month="\#($0.month)",project="\#($0.project)"}"#, Int($0.rows)) })
        if let certificate {
            metric(
                "hapax_certificate_end_timestamp_seconds", "When the certificate ends.", type: "gauge", [("", Int(certificate.end / 1_000))]
            )
            metric(
                "hapax_certificate_differs_from_files", "1 while the files of the certificate hold something that cannot be used.",
                type: "gauge", [("", certificate.problem == nil ? 0 : 1)])
        }
        return text
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
