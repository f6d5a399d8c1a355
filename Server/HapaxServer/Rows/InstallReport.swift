import HapaxModel

/// What one install reports about itself in its envelopes.
///
/// The two sequences only rise, so the store keeps the greatest of each. The rest has a version, and the store keeps the rest of the greatest
/// version, so that replays and late requests do no harm.
package struct InstallReport: Sendable, Equatable {
    package var key: EventKey
    /// The highest sequence that the install has assigned.
    package var created: Int64
    /// The highest sequence that an answer has settled.
    package var acknowledged: Int64
    /// The report's version; 0 if the envelope has none, and then the fields below are empty.
    package var reportVersion: Int64
    /// ``EventBatch/Envelope/held`` as JSON.
    package var held: [UInt8]
    /// ``EventBatch/Envelope/removed`` as JSON.
    package var removed: [UInt8]
    /// ``EventBatch/Envelope/refused`` as JSON.
    package var refused: [UInt8]
    package var heldRanges: [ClosedRange<Int64>]
    package var removedRanges: [EventBatch.Envelope.Removed]

    /// - Returns: nil if the envelope names no install, or reports nothing about it.
    package init?(_ envelope: EventBatch.Envelope, projectID: Int32) {
        guard let installID = envelope.installID,
            envelope.created != nil || envelope.acknowledged != nil || envelope.reportVersion != nil || !envelope.removed.isEmpty
        else { return nil }
        var envelope = envelope
        if envelope.held.count > InstallBook.maximumRanges {
            envelope.held = SequenceSet(envelope.held).coarsened(to: InstallBook.maximumRanges).ranges
        }
        for index in envelope.removed.indices { envelope.removed[index].reason = Self.shortened(envelope.removed[index].reason) }
        envelope.refused = Dictionary(envelope.refused.map { (Self.shortened($0.key), $0.value) }) { first, second in
            let (sum, isTooLarge) = first.addingReportingOverflow(second)
            return isTooLarge ? .max : sum
        }
        key = EventKey(id: installID, projectID: projectID)
        created = envelope.created ?? 0
        acknowledged = envelope.acknowledged ?? 0
        reportVersion = envelope.reportVersion ?? 0
        let isVersioned = reportVersion > 0
        held = isVersioned ? envelope.encodedHeld : Array("[]".utf8)
        removed = isVersioned ? envelope.encodedRemoved : Array("[]".utf8)
        refused = isVersioned ? envelope.encodedRefused : Array("{}".utf8)
        (heldRanges, removedRanges) = (isVersioned ? envelope.held : [], envelope.removed)
    }

    /// A reason as it is kept: each request of an install reads its book.
    static func shortened(_ reason: String) -> String {
        guard reason.utf8.count > ServerLimits.reasonBytes else { return reason }
        var scalars = reason.unicodeScalars
        while scalars.reduce(0, { $0 + UTF8.width($1) }) > ServerLimits.reasonBytes { scalars.removeLast() }
        return String(scalars)
    }

    package mutating func merge(_ other: InstallReport) {
        let (created, acknowledged) = (max(created, other.created), max(acknowledged, other.acknowledged))
        let removed = reportVersion == 0 || other.reportVersion == 0 ? removedRanges + other.removedRanges : []
        if other.reportVersion > reportVersion { self = other }
        if !removed.isEmpty { removedRanges = removed }
        (self.created, self.acknowledged) = (created, acknowledged)
    }

    /// One for each install, sorted by key: all groups write in this order, so that they cannot deadlock.
    package static func merged(_ reports: [InstallReport]) -> [InstallReport] {
        var byInstall: [EventKey: InstallReport] = [:]
        for report in reports { byInstall[report.key, default: report].merge(report) }
        return byInstall.values.sorted { $0.key < $1.key }
    }
}
