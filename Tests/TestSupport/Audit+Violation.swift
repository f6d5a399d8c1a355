import HapaxModel

extension Audit {
    /// One broken promise.
    package enum Violation: Hashable, Sendable {
        /// Reported durable, and neither stored nor in the dead letters (I1).
        case lost(project: String, EventID)
        /// More than one row (I2).
        case storedTwice(project: String, EventID, copies: Int)
        /// Stored, and in the dead letters for another reason than a conflict (I1).
        case storedAndDead(EventID)
        /// In the dead letters more than once.
        case deadTwice(EventID)
        /// In the dead letters, and nobody can say why (I1).
        case withoutReason(EventID)
        /// Stored or dead, though nobody sent it; or stored in a project that it was not sent to (I9).
        case unexpected(project: String?, EventID)
        /// Stored with another install or sequence than was reported (I3).
        case changed(project: String, EventID)
        /// Sequences of an install that are nowhere, though later ones are somewhere (I7).
        case gap(install: EventID, missing: ClosedRange<Int64>)
        /// One sequence for several events (I7).
        case repeatedSequence(install: EventID, Int64)
        /// A lower sequence seen after a higher one (I7).
        case inversion(order: String, install: EventID, Int64, after: Int64)
        /// tracked ≠ stored + dead + queued (I12).
        case booksDoNotAddUp(Books)
        /// The books count other dead letters than there are (I12).
        case booksMiscountDead(Books, found: Int)
        /// Something is still queued, so that nothing is proved about it (I15).
        case notDrained(Books)
    }

    private struct Place: Hashable {
        var project: String
        var id: EventID
    }

    private var buried: Set<EventID> { Set(deadLetters.filter { !$0.isConflict }.map(\.id)) }

    // MARK: - Conservation (I1, I2)

    var lost: [Violation] {
        let stored = Set(rows.map { Place(project: $0.project, id: $0.id) })
        let buried = buried
        var seen: Set<Place> = []
        return reports.compactMap { report in
            let place = Place(project: report.project, id: report.id)
            guard !stored.contains(place), !buried.contains(report.id), seen.insert(place).inserted else { return nil }
            return .lost(project: report.project, report.id)
        }
    }

    var storedTwice: [Violation] {
        Dictionary(grouping: rows) { Place(project: $0.project, id: $0.id) }
            .filter { $0.value.count > 1 }
            .sorted { $0.key.id < $1.key.id }
            .map { .storedTwice(project: $0.key.project, $0.key.id, copies: $0.value.count) }
    }

    var inBothPlaces: [Violation] {
        let stored = Set(rows.map(\.id))
        let dead = deadLetters.filter { !$0.isConflict }
        let twice = Dictionary(grouping: dead, by: \.id).filter { $0.value.count > 1 }.keys.sorted().map { Violation.deadTwice($0) }
        return Set(dead.map(\.id)).intersection(stored).sorted().map { .storedAndDead($0) } + twice
    }

    var withoutReason: [Violation] {
        deadLetters.filter(\.reason.isEmpty).map { .withoutReason($0.id) }
    }

    var unexpected: [Violation] {
        let reported = Set(reports.map { Place(project: $0.project, id: $0.id) })
        let ids = Set(reports.map(\.id))
        let installs = Set(reports.compactMap(\.install)).union(books.map(\.install))
        func isKnown(_ install: EventID?) -> Bool { mayHoldUnreported && install.map(installs.contains) == true }
        let strangers = rows.filter { row in
            if reported.contains(Place(project: row.project, id: row.id)) { return false }
            // A reported id in a project that it was not reported for is no event that a kill kept from being reported.
            return ids.contains(row.id) || !isKnown(row.install)
        }
        let dead = deadLetters.filter { !ids.contains($0.id) && !isKnown($0.install) }
        return strangers.map { .unexpected(project: $0.project, $0.id) } + dead.map { .unexpected(project: nil, $0.id) }
    }

    var changed: [Violation] {
        let reported = Dictionary(reports.map { (Place(project: $0.project, id: $0.id), $0) }, uniquingKeysWith: { first, _ in first })
        return rows.compactMap { row in
            guard let report = reported[Place(project: row.project, id: row.id)] else { return nil }
            let isSame =
                (report.install == nil || report.install == row.install) && (report.sequence == nil || report.sequence == row.sequence)
            return isSame ? nil : .changed(project: row.project, row.id)
        }
    }

    // MARK: - Sequence (I7)

    var brokenSequences: [Violation] {
        var owners: [EventID: [Int64: Set<EventID>]] = [:]
        func note(_ install: EventID?, _ sequence: Int64?, _ id: EventID) {
            if let install, let sequence { owners[install, default: [:]][sequence, default: []].insert(id) }
        }
        for row in rows { note(row.install, row.sequence, row.id) }
        for deadLetter in deadLetters { note(deadLetter.install, deadLetter.sequence, deadLetter.id) }
        let arrived = owners.mapValues { Set($0.keys) }
        // Reports take part in finding repeats; what is only reported has not arrived and does not fill a gap.
        for report in reports { note(report.install, report.sequence, report.id) }
        return owners.sorted { $0.key < $1.key }.flatMap { install, sequences in
            let repeated = sequences.filter { $0.value.count > 1 }.keys.sorted()
            return gaps(install, arrived[install] ?? [], upTo: sequences.keys.max() ?? 0)
                + repeated.map { .repeatedSequence(install: install, $0) }
        }
    }

    private func gaps(_ install: EventID, _ arrived: Set<Int64>, upTo last: Int64) -> [Violation] {
        var gaps: [Violation] = []
        var expected: Int64 = 1
        for sequence in arrived.sorted() + [last + 1] {
            if sequence > expected { gaps.append(.gap(install: install, missing: expected...(sequence - 1))) }
            expected = max(expected, sequence + 1)
        }
        return gaps
    }

    var inversions: [Violation] {
        orders.flatMap { order in
            var last: [EventID: Int64] = [:]
            return order.events.compactMap { install, sequence -> Violation? in
                let before = last[install] ?? 0
                last[install] = max(before, sequence)
                return sequence > before ? nil : .inversion(order: order.name, install: install, sequence, after: before)
            }
        }
    }

    // MARK: - Books (I12)

    var wrongBooks: [Violation] {
        books.flatMap { books in
            var violations: [Violation] = []
            if books.tracked != books.stored + books.dead + books.queued { violations.append(.booksDoNotAddUp(books)) }
            let found = deadLetters.count { $0.install == books.install }
            if books.dead != found { violations.append(.booksMiscountDead(books, found: found)) }
            if books.queued != 0 { violations.append(.notDrained(books)) }
            return violations
        }
    }
}
