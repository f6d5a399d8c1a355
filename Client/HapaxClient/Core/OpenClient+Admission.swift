import Foundation
import GRDB
import HapaxModel
import Logging

extension OpenClient {
    /// How often an event is enriched while what it is laid over changes; then it is taken as it is. An enricher that makes such changes
    /// itself would otherwise never end.
    private static let maximumEnrichments = 8

    /// How soon a refusal is counted on disk if no event's commit does so before.
    private static let countingDelay: Duration = .seconds(1)

    /// Takes an event in, or counts it as refused.
    func admit(
        _ name: String, _ properties: Properties, _ id: EventID, _ time: Int64?, _ distinctID: String?, _ waiter: CommitWaiter? = nil,
        isKept: Bool = false
    ) -> Intake.Admission {
        let admission = admitEnriched(name, properties, id, time, distinctID, waiter, isKept)
        if case .refused(let reason) = admission, reason != .shutDown { countRefusalsSoon() }
        return admission
    }

    /// Events were refused while there was no client, and counted by the metric then. What is to come is that the server learns of them.
    package func takeOverRefusals(_ counts: [String: Int64]) {
        guard !counts.isEmpty else { return }
        reporter.hasReported(counts)
        writer.intake.withLock { $0.addRefusals(counts) }
        countRefusalsSoon()
    }

    /// One commit for all of a while: who has opted out may refuse many, and no event may ever come that is committed with their count.
    func countRefusalsSoon() {
        let isDue = isCountScheduled.withLock { isScheduled in
            defer { isScheduled = true }
            return !isScheduled
        }
        guard isDue else { return }
        _ = clock.schedule(after: Self.countingDelay) { [weak writer, reporter, isCountScheduled] in
            isCountScheduled.withLock { $0 = false }
            guard let writer else { return }
            reporter.refused(writer.intake.withLock { $0.uncounted })
            writer.whenStored {}
        }
    }

    /// What the user's code adds is asked for outside of the lock: it may take its time, or track.
    private func admitEnriched(
        _ name: String, _ properties: Properties, _ id: EventID, _ time: Int64?, _ distinctID: String?, _ waiter: CommitWaiter?,
        _ isKept: Bool
    ) -> Intake.Admission {
        func admit(_ own: Properties, now: Int64?) -> Intake.Admission {
            let bytes = QueueUsage.bytes(of: own)
            // The client keeps it: counting one more reference costs as much as the lock.
            return Unmanaged.passUnretained(writer.intake)._withUnsafeGuaranteedRef { intake in
                intake.lock()
                defer { intake.unlock() }
                return intake.locked.pointee.admit(
                    name: name, properties: own, id: id, time: time, distinctID: distinctID, now: now ?? clock.unixMilliseconds,
                    waiter: waiter, isKept: isKept, propertyBytes: bytes)
            }
        }
        guard !configuration.enrichers.isEmpty else { return admit(properties, now: nil) }
        // It is not asked about an event that is not taken: who has opted out is nobody's business (D16).
        if let refused = refuseAll(isKept) { return refused }
        // The event happened before that code took its time (R58).
        let called = clock.unixMilliseconds
        let consent = writer.intake.withLock { $0.consent }
        var attemptsLeft = Self.maximumEnrichments
        while true {
            attemptsLeft -= 1
            let context = writer.intake.withLock { intake in
                intake.continueSession(at: called)
                return intake.context
            }
            let own = context.own(properties)
            var draft = EventDraft(
                name: name, distinctID: distinctID ?? context.identity.distinctID,
                properties: context.base.merging(own), own: own)
            for enrich in configuration.enrichers {
                guard let enriched = enrich(draft) else {
                    return refuseAll(isKept) ?? writer.intake.withLock { $0.refuse(.enricher) }
                }
                draft = enriched
            }
            context.markState(of: &draft.properties)
            let bytes = QueueUsage.bytes(of: draft.properties)
            let admission: Intake.Admission? = writer.intake.withLock {
                // Enriched for somebody who has logged out meanwhile: once more, so that the order of calls holds.
                guard $0.context.generation == context.generation || attemptsLeft == 0 else { return nil }
                return $0.admit(
                    name: draft.name, properties: draft.properties, id: id, time: time, distinctID: draft.distinctID,
                    now: called, waiter: waiter, isComplete: true, isKept: isKept, propertyBytes: bytes, calledUnder: consent)
            }
            if let admission { return admission }
        }
    }

    /// - Returns: nil if events are taken.
    private func refuseAll(_ isKept: Bool) -> Intake.Admission? {
        writer.intake.withLock { intake in intake.reasonToRefuseAll.map { intake.refuse($0, isKept: isKept) } }
    }
}
