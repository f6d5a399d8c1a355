import HapaxModel

/// What became of each sequence that an install has given: a row, or a fate. It is kept in the transactions that store rows, and in no others.
///
/// An install delivers in order. So a sequence without an end, below what the install takes for settled and not among those that it still
/// holds, is a loss. A value without clock or I/O. An example, with sequences 1…9 in three envelopes (the tests go through it):
///
/// | The envelope says | its events | ``created``, ``acknowledged`` | ``held`` | ``stored`` | ``fates`` | waiting | missing |
/// |---|---|---|---|---|---|---|---|
/// | version 1, created 4 | 1 and 2 are stored, 3 is refused | 4, 0 | – | 1…2 | 3 `name_too_long` | 4 | – |
/// | version 2, created 7, acknowledged 3, held 5, removed 4 `purged` | 6 is stored | 7, 3 | 5 | 1…2, 6 | and 4 `purged` | 5, 7 | – |
/// | version 3, created 9, acknowledged 8 | 9 is stored | 9, 8 | – | 1…2, 6, 9 | the same | – | 5, 7, 8 |
///
/// In the end 9 were given: 4 stored, 1 refused, 1 discarded, 3 missing since the third envelope. If 7 comes after all, it is stored, and 5 and 8
/// are missing.
package struct InstallBook: Hashable, Sendable {
    /// Why sequences have no row. A later end replaces an earlier one, and a row replaces all.
    package struct Fate: Hashable, Sendable {
        package var sequences: ClosedRange<Int64>
        package var reason: String
        /// Whether the install has said so itself, of events that never came.
        package var isOfClient: Bool
        /// When it was first and last reported, in Unix milliseconds.
        package var first: Int64
        package var last: Int64

        /// The install has it still, and sends it again.
        var isRetry: Bool { !isOfClient && reason == Receipt.Outcome.retry.rawValue }
        var isDuplicate: Bool { !isOfClient && reason == Receipt.Outcome.duplicate.rawValue }
    }

    /// What a group says of an install.
    package struct Entry: Sendable {
        package var report: InstallReport
        /// Sequences whose rows the group stores.
        package var stored = SequenceSet()
        /// Sequences that were answered with another end, by the reason.
        package var ended: [String: SequenceSet] = [:]
    }

    /// Counts of sequences; together they are ``given``, unless ``InstallBook/isUnknown``.
    package struct Figures: Hashable, Sendable {
        /// Since the book began.
        package var given: Int64 = 0
        package var stored: Int64 = 0
        /// Events that were stored before under another number.
        package var duplicates: Int64 = 0
        package var refused: Int64 = 0
        package var discarded: Int64 = 0
        package var waiting: Int64 = 0
        package var missing: Int64 = 0
    }

    package var created: Int64 = 0
    package var acknowledged: Int64 = 0
    package var reportVersion: Int64 = 0
    package var held = SequenceSet()
    /// The first sequence that counts: of installs from before there were books, the first one after.
    package var begins: Int64 = 1
    package var stored = SequenceSet()
    /// Sorted by sequence; none overlaps another one or ``stored``.
    package var fates: [Fate] = []
    /// Rows that were stored under a sequence that had one already: the install's queue was copied or restored.
    package var repeated: Int64 = 0
    /// Of numbers before ``begins`` that have their ends, whose ranges were too many.
    package var folded = Figures()
    /// More ranges than are kept: what became of each event is not known any more.
    package var isUnknown = false
    /// Since when sequences are missing, in Unix milliseconds.
    package var missingSince: Int64?

    package init() {}

    /// Somebody has changed it by hand.
    static var unreadable: InstallBook {
        var book = InstallBook()
        book.isUnknown = true
        return book
    }

    static let maximumRanges = 100

    // MARK: - Writing

    /// - Parameter now: The store's clock, in Unix milliseconds.
    /// - Returns: Whether anything has changed.
    package mutating func add(_ entry: Entry, now: Int64) -> Bool {
        let before = self
        let report = entry.report
        created = max(created, min(report.created, SequenceSet.maximum))
        acknowledged = max(acknowledged, min(report.acknowledged, SequenceSet.maximum))
        let isLater = report.reportVersion > reportVersion
        if isLater { (reportVersion, held) = (report.reportVersion, SequenceSet(report.heldRanges)) }
        // The last report of a damaged queue has no version.
        let gone = isLater || report.reportVersion == 0 ? report.removedRanges : []
        // Whatever has an end was given.
        for range in gone { created = max(created, min(range.sequences.upperBound, SequenceSet.maximum)) }
        for sequences in entry.ended.values { created = max(created, sequences.last ?? 0) }
        if !isUnknown {
            let counted = entry.stored.intersection(begins...SequenceSet.maximum)
            if counted.ranges.contains(where: { range in stored.ranges.contains { $0.overlaps(range) } }) {
                repeated += counted.count - counted.subtracting(stored).count
            }
            stored.formUnion(counted)
            if !fates.isEmpty { cut(counted) }
            let reasons = Dictionary(grouping: gone, by: \.reason).mapValues { SequenceSet($0.map(\.sequences)) }
            for (reason, sequences) in reasons.sorted(by: { $0.key < $1.key }) { end(sequences, reason, isOfClient: true, now) }
            for (reason, sequences) in entry.ended.sorted(by: { $0.key < $1.key }) { end(sequences, reason, isOfClient: false, now) }
            if stored.ranges.count > Self.maximumRanges || fates.count > Self.maximumRanges { fold() }
            if stored.ranges.count > Self.maximumRanges || fates.count > Self.maximumRanges {
                (isUnknown, stored, fates) = (true, SequenceSet(), [])
            }
        }
        let isMissing = figures.missing > 0
        missingSince = isMissing ? missingSince ?? now : nil
        return self != before
    }

    private mutating func end(_ sequences: SequenceSet, _ reason: String, isOfClient: Bool, _ now: Int64) {
        let sequences = sequences.intersection(begins...SequenceSet.maximum).subtracting(stored)
        guard !sequences.isEmpty, fates.count <= Self.maximumRanges else { return }
        // What is reported again keeps the time of its first report.
        let known = fates.first { fate in fate.reason == reason && sequences.ranges.contains { $0.overlaps(fate.sequences) } }
        cut(sequences)
        for range in sequences.ranges {
            let fate = Fate(sequences: range, reason: reason, isOfClient: isOfClient, first: known?.first ?? now, last: now)
            fates.insert(fate, at: fates.firstIndex { $0.sequences.lowerBound > range.upperBound } ?? fates.endIndex)
        }
        join()
    }

    private mutating func cut(_ sequences: SequenceSet) {
        guard fates.contains(where: { fate in sequences.ranges.contains { $0.overlaps(fate.sequences) } }) else { return }
        fates = fates.flatMap { fate in
            SequenceSet([fate.sequences]).subtracting(sequences).ranges.map { range in
                var part = fate
                part.sequences = range
                return part
            }
        }
    }

    /// Forgets the ranges of the oldest numbers, up to the first without an end, and keeps how many there are.
    private mutating func fold() {
        let open = SequenceSet([begins...max(begins, max(created, settled))]).subtracting(stored)
            .subtracting(SequenceSet(fates.filter { !$0.isRetry }.map(\.sequences)))
        // The newest ranges stay, since what is refused may still come.
        let recent = min(
            stored.ranges.dropLast(Self.maximumRanges / 4).last?.upperBound ?? .max,
            fates.dropLast(Self.maximumRanges / 4).last?.sequences.upperBound ?? .max)
        let end = min(recent, (open.ranges.first?.lowerBound ?? .max) - 1)
        guard end >= begins, end < .max - 1 else { return }
        var old = self
        old.stored = stored.intersection(begins...end)
        old.fates = fates.filter { $0.sequences.upperBound <= end }
        (old.created, old.acknowledged) = (old.stored.last ?? 0, 0)
        let figures = old.figures
        // A range of refused ones that goes on stays whole.
        guard old.stored.count + SequenceSet(old.fates.map(\.sequences)).count == end - begins + 1 else { return }
        folded = figures
        (folded.given, folded.waiting, folded.missing) = (folded.stored + folded.duplicates + folded.refused + folded.discarded, 0, 0)
        stored = stored.subtracting(old.stored)
        fates.removeFirst(old.fates.count)
        begins = end + 1
    }

    /// Neighbours with one reason are one.
    private mutating func join() {
        fates = fates.reduce(into: []) { joined, fate in
            guard let last = joined.last, last.sequences.upperBound + 1 == fate.sequences.lowerBound, last.reason == fate.reason,
                last.isOfClient == fate.isOfClient
            else { return joined.append(fate) }
            joined[joined.count - 1].sequences = last.sequences.lowerBound...fate.sequences.upperBound
            joined[joined.count - 1].first = min(last.first, fate.first)
            joined[joined.count - 1].last = max(last.last, fate.last)
        }
    }

    // MARK: - Reading

    /// Up to here the install has let go of what it does not hold.
    private var settled: Int64 { max(acknowledged, stored.last ?? 0) }

    /// Sequences without an end that should have one.
    package var missing: SequenceSet {
        guard !isUnknown, settled >= begins else { return SequenceSet() }
        return SequenceSet([begins...settled]).subtracting(stored).subtracting(SequenceSet(fates.map(\.sequences)))
            .subtracting(held)
    }

    package var figures: Figures {
        var figures = Figures()
        figures.given = max(0, max(created, settled) - begins + 1)
        guard !isUnknown else { return figures }
        func count(_ fates: [Fate]) -> Int64 { fates.reduce(0) { $0 + ($1.sequences.upperBound - $1.sequences.lowerBound) + 1 } }
        figures.stored = stored.count
        figures.duplicates = count(fates.filter(\.isDuplicate))
        figures.refused = count(fates.filter { !$0.isOfClient && !$0.isDuplicate && !$0.isRetry })
        figures.discarded = count(fates.filter(\.isOfClient))
        figures.missing = missing.count
        figures.waiting = max(
            0, figures.given - figures.stored - figures.duplicates - figures.refused - figures.discarded - figures.missing)
        figures.given += folded.given
        figures.stored += folded.stored
        figures.duplicates += folded.duplicates
        figures.refused += folded.refused
        figures.discarded += folded.discarded
        return figures
    }
}
