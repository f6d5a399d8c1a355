import HapaxModel
import TestSupport
import Testing

/// Controls of the audit itself: it is silent when all is well, and each broken promise, planted alone, is named and nothing else.
@Suite(.endsWhenItHangs)
struct AuditTests {
    private let first: EventID
    private let second: EventID
    private let ids: [EventID]

    init() {
        var generator = UUIDv7Generator(randomness: SeededRandom(seed: 1))
        first = generator.next(unixMilliseconds: 1)
        second = generator.next(unixMilliseconds: 1)
        ids = (0..<12).map { _ in generator.next(unixMilliseconds: 2) }
    }

    /// Two installs with five events each, all reported; the last event of the second is a dead letter.
    private func sound(_ change: (inout Audit) -> Void = { _ in }) -> [Audit.Violation] {
        var audit = Audit()
        for (index, id) in ids.prefix(10).enumerated() {
            let install = index < 5 ? first : second
            let sequence = Int64(index % 5 + 1)
            audit.reports.append(.init(id: id, install: install, sequence: sequence))
            if index < 9 {
                audit.rows.append(.init(id: id, install: install, sequence: sequence))
            } else {
                audit.deadLetters.append(.init(id: id, install: install, sequence: sequence, reason: "event_too_large"))
            }
        }
        audit.books = [
            .init(install: first, tracked: 5, stored: 5, dead: 0, queued: 0),
            .init(install: second, tracked: 5, stored: 4, dead: 1, queued: 0),
        ]
        let uploads: [(EventID, Int64)] = [(first, 1), (second, 1), (first, 2), (first, 3), (second, 2), (second, 3)]
        audit.orders = [.init("uploads", uploads)]
        change(&audit)
        return audit.violations
    }

    @Test func soundRunHasNoViolations() {
        #expect(sound() == [])
        #expect(Audit().violations == [])
    }

    @Test("I1: lost")
    func lostEventIsFound() {
        // The last of its install: no later sequence shows the gap, the report does.
        #expect(sound { $0.rows.remove(at: 4) } == [.lost(project: "demo", ids[4]), .gap(install: first, missing: 5...5)])
        #expect(sound { $0.rows[0].project = "other" } == [.lost(project: "demo", ids[0]), .unexpected(project: "other", ids[0])])
        #expect(
            sound {
                $0.deadLetters = []
                $0.books[1] = .init(install: second, tracked: 4, stored: 4, dead: 0, queued: 0)
            } == [.lost(project: "demo", ids[9]), .gap(install: second, missing: 5...5)])
    }

    @Test("I2: stored twice")
    func secondCopyIsFound() {
        #expect(sound { $0.rows.append($0.rows[2]) } == [.storedTwice(project: "demo", ids[2], copies: 2)])
    }

    @Test("I1: stored and dead")
    func eventInBothPlacesIsFound() {
        #expect(
            sound {
                $0.deadLetters.append(.init(id: ids[0], install: first, sequence: 1, reason: "rejected"))
                $0.books[0] = .init(install: first, tracked: 6, stored: 5, dead: 1, queued: 0)
            } == [.storedAndDead(ids[0])])
    }

    @Test("I1: a conflict keeps other content aside and is not dead, so it saves nothing either")
    func conflictDoesNotCount() {
        let conflict = Audit.DeadLetter(id: ids[0], install: first, sequence: 1, reason: "conflict")
        let books = Audit.Books(install: first, tracked: 6, stored: 5, dead: 1, queued: 0)
        #expect(
            sound {
                $0.deadLetters.append(conflict)
                $0.books[0] = books
            } == [])
        #expect(
            sound {
                $0.deadLetters.append(conflict)
                $0.books[0] = books
                $0.rows.remove(at: 0)
            } == [.lost(project: "demo", ids[0])])
    }

    @Test func deadLettersAreSingleAndHaveAReason() {
        #expect(
            sound {
                $0.deadLetters.append($0.deadLetters[0])
                $0.books[1] = .init(install: second, tracked: 6, stored: 4, dead: 2, queued: 0)
            } == [.deadTwice(ids[9])])
        #expect(sound { $0.deadLetters[0].reason = "" } == [.withoutReason(ids[9])])
    }

    @Test func unexpectedEventsAreFound() {
        #expect(sound { $0.rows.append(.init(id: ids[10])) } == [.unexpected(project: "demo", ids[10])])
        #expect(sound { $0.deadLetters.append(.init(id: ids[10], reason: "rejected")) } == [.unexpected(project: nil, ids[10])])
        // I9: in a project that it was not sent to.
        #expect(sound { $0.rows.append(.init(project: "other", id: ids[0])) } == [.unexpected(project: "other", ids[0])])
    }

    @Test func unreportedEventsOfKnownInstallsCanBeAllowed() {
        let unreported = Audit.Row(id: ids[10], install: first, sequence: 6)
        #expect(sound { $0.rows.append(unreported) } == [.unexpected(project: "demo", ids[10])])
        #expect(
            sound {
                $0.rows.append(unreported)
                $0.mayHoldUnreported = true
            } == [])
        #expect(
            sound {
                $0.rows += [.init(id: ids[10], install: ids[11], sequence: 1), .init(project: "other", id: ids[1], install: first)]
                $0.mayHoldUnreported = true
            } == [.unexpected(project: "demo", ids[10]), .unexpected(project: "other", ids[1])])
    }

    @Test("I3: stored otherwise than reported")
    func changedRowIsFound() {
        #expect(
            sound { ($0.rows[0].install, $0.rows[0].sequence) = (nil, nil) }
                == [.changed(project: "demo", ids[0]), .gap(install: first, missing: 1...1)])
    }

    @Test("I7: gaps at the start, within and at the end")
    func gapsAreFound() {
        func without(_ indices: ClosedRange<Int>) -> [Audit.Violation] {
            sound {
                $0.rows.removeSubrange(indices)
                $0.reports.removeSubrange(indices)
            }
        }
        #expect(without(0...1) == [.gap(install: first, missing: 1...2)])
        #expect(without(2...2) == [.gap(install: first, missing: 3...3)])
        // Nothing tells of the last one then, and nothing was promised about it.
        #expect(without(4...4) == [])
    }

    @Test("I7: one sequence for two events")
    func repeatedSequenceIsFound() {
        #expect(
            sound {
                $0.rows.append(.init(id: ids[10], install: first, sequence: 3))
                $0.reports.append(.init(id: ids[10], install: first, sequence: 3))
            } == [.repeatedSequence(install: first, 3)])
    }

    @Test("I7: inversions, each install by itself")
    func inversionIsFound() {
        #expect(
            sound { $0.orders[0].events += [(first, 2), (second, 5), (first, 4), (second, 5)] } == [
                .inversion(order: "uploads", install: first, 2, after: 3), .inversion(order: "uploads", install: second, 5, after: 5),
            ])
    }

    @Test("I12: books")
    func wrongBooksAreFound() {
        let short = Audit.Books(install: first, tracked: 6, stored: 5, dead: 0, queued: 0)
        #expect(sound { $0.books[0] = short } == [.booksDoNotAddUp(short)])
        let miscounted = Audit.Books(install: second, tracked: 5, stored: 5, dead: 0, queued: 0)
        #expect(sound { $0.books[1] = miscounted } == [.booksMiscountDead(miscounted, found: 1)])
        let waiting = Audit.Books(install: first, tracked: 6, stored: 5, dead: 0, queued: 1)
        #expect(sound { $0.books[0] = waiting } == [.notDrained(waiting)])
    }
}
