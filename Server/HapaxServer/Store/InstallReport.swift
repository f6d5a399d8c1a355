import HapaxModel

/// What one install says of itself in its envelopes.
///
/// The numbers only ever rise, so the store keeps the greatest. The rest belongs to a word, and the store keeps that of the latest word:
/// replays and late requests do no harm.
package struct InstallReport: Sendable, Equatable {
    package var key: EventKey
    /// The highest sequence given.
    package var created: Int64
    /// The highest sequence settled.
    package var acknowledged: Int64
    /// 0 if it gave none; then nothing below counts.
    package var word: Int64
    /// JSON, as ``EventBatch/Envelope/held`` travels.
    package var held: [UInt8]
    /// JSON, as ``EventBatch/Envelope/gone`` travels.
    package var gone: [UInt8]
    /// JSON, as ``EventBatch/Envelope/refused`` travels.
    package var refused: [UInt8]

    /// - Returns: nil if the envelope names no install, or says nothing of it.
    package init?(_ envelope: EventBatch.Envelope, projectID: Int32) {
        guard let installID = envelope.installID, envelope.created != nil || envelope.acknowledged != nil || envelope.word != nil else {
            return nil
        }
        key = EventKey(id: installID, projectID: projectID)
        created = envelope.created ?? 0
        acknowledged = envelope.acknowledged ?? 0
        word = envelope.word ?? 0
        let isWord = word > 0
        held = isWord ? envelope.encodedHeld : Array("[]".utf8)
        gone = isWord ? envelope.encodedGone : Array("[]".utf8)
        refused = isWord ? envelope.encodedRefused : Array("{}".utf8)
    }

    package mutating func merge(_ other: InstallReport) {
        let (created, acknowledged) = (max(created, other.created), max(acknowledged, other.acknowledged))
        if other.word > word { self = other }
        (self.created, self.acknowledged) = (created, acknowledged)
    }

    /// One for each install, in the order in which every group writes them.
    package static func merged(_ reports: [InstallReport]) -> [InstallReport] {
        var byInstall: [EventKey: InstallReport] = [:]
        for report in reports { byInstall[report.key, default: report].merge(report) }
        return byInstall.values.sorted { $0.key < $1.key }
    }
}
