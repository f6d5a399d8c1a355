import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

@Suite("Outcomes are decided as a value", .endsWhenItHangs)
struct CommitGroupTests {
    private func outcomes(
        _ requests: [IngestRequest], horizon: Int32 = 0, found: [EventKey: Int64] = [:],
        refused: [EventKey: EventProblem] = [:]
    ) -> [[Receipt.Outcome]] {
        let group = CommitGroup(requests, horizon: horizon)
        // What the store would say: what is in it is another content.
        var verdicts: [RowKey.Place: Bool] = [:]
        for row in group.repeats(found: found, refused: refused) {
            verdicts[row.place] = found[row.key] == nil && group.first(like: row)?.valueHash.value == group.record(row).valueHash.value
        }
        return group.outcomes(found: found, refused: refused, verdicts: verdicts).map(\.outcomes)
    }

    private let refused = Array(#"{"event_id":"019b76da-a800-7000-8000-000000000001","event":"x","time":-1,"distinct_id":"d"}"#.utf8)

    @Test("A second copy in the group is a duplicate; the store sees each key once, in order (I2)")
    func duplicateInsideGroup() throws {
        let first = try Sample.request([Sample.event(Sample.id(2)), Sample.event(Sample.id(1)), Sample.event(Sample.id(2))])
        let second = try Sample.request([Sample.event(Sample.id(1))])
        let group = CommitGroup([first, second], horizon: 0)
        #expect(group.storeGroup.records.map(\.key.id) == [Sample.id(1), Sample.id(2)])
        #expect(outcomes([first, second]) == [[.stored, .stored, .duplicate], [.duplicate]])
    }

    @Test("The same id with other content is a conflict, in the group and against the store (I3)")
    func otherContentIsConflict() throws {
        let request = try Sample.request([
            Sample.event(Sample.id(1)), Sample.event(Sample.id(1), properties: ["amount": 13]),
            Sample.event(Sample.id(2), distinctID: "someone else"),
        ])
        let stored = Sample.record(Sample.id(2))
        #expect(outcomes([request], found: [stored.key: stored.fingerprint]) == [[.stored, .conflict, .conflict]])
    }

    @Test("What comes again in other bytes is compared by value: in the group each copy of each key, nothing else (I3)")
    func repeatsAreCompared() throws {
        let ids = [Sample.id(1), Sample.id(2)]
        let request = try Sample.request(
            [0, 0, 1, 1].map { SameContent.event("\(ids[$0])", #"{"a":1}"#) } + [SameContent.event("\(ids[0])", #"{"a":1.0}"#)])
        let group = CommitGroup([request, request], horizon: 0)
        #expect(group.repeats(found: [:]).map { [$0.batch, $0.entry] } == [[0, 4], [1, 4]])
        #expect(group.repeats(found: [:], refused: [EventKey(id: ids[0], projectID: 1): .init(.refusedByStore, detail: "")]).isEmpty)
        #expect(CommitGroup([request], horizon: ids[0].bucket + 1).repeats(found: [:]).isEmpty)
        // Nothing can be said of it now.
        #expect(group.outcomes(found: [:]).map(\.outcomes.last) == [.retry, .retry])
        #expect(outcomes([request]) == [[.stored, .duplicate, .stored, .duplicate, .duplicate]])
        let record = Sample.record(ids[1])
        #expect(group.repeats(found: [record.key: record.fingerprint]).count == 6)
    }

    @Test("Time, sequence and install take no part in the comparison")
    func timeAndSequenceAreNotCompared() throws {
        let request = try Sample.request([
            Sample.event(Sample.id(1)), Sample.event(Sample.id(1), time: Sample.now + 5, sequence: 9),
        ])
        #expect(outcomes([request]) == [[.stored, .duplicate]])
    }

    @Test("A derived id is never a conflict")
    func derivedIDIsNotCompared() throws {
        let id = EventID.derived(name: "order_paid", key: "4711")
        let request = try Sample.request([Sample.event(id), Sample.event(id, properties: ["amount": 99])])
        #expect(outcomes([request]) == [[.stored, .duplicate]])
    }

    @Test("duplicate beats rejected: a refused event whose id is stored, before or in this group, is a duplicate (I1)")
    func duplicateBeatsRejected() throws {
        let bad = try Sample.request([refused])
        let key = EventKey(id: Sample.id(1), projectID: 1)
        #expect(CommitGroup([bad], horizon: 0).storeGroup.lookups == [key])
        #expect(outcomes([bad]) == [[.rejected]])
        #expect(outcomes([bad], found: [key: 7]) == [[.duplicate]])
        let good = try Sample.request([Sample.event(Sample.id(1))])
        #expect(outcomes([bad, good]) == [[.duplicate], [.stored]])
        let refusal = EventProblem(.refusedByStore, detail: "SQLSTATE 22P02")
        #expect(outcomes([bad, good], refused: [key: refusal]) == [[.rejected], [.rejected]])
    }

    @Test("duplicate beats expired, and only dated ids expire (I2)")
    func horizonExpiresDatedIDsOnly() throws {
        let horizon = Sample.id(1).bucket + 1
        let derived = EventID.derived(name: "order_paid", key: "1")
        let request = try Sample.request([Sample.event(Sample.id(1)), Sample.event(Sample.id(2)), Sample.event(derived)])
        let stored = Sample.record(Sample.id(2))
        let group = CommitGroup([request], horizon: horizon)
        #expect(group.storeGroup.records.map(\.key.id) == [derived])
        #expect(group.storeGroup.lookups.count == 2)
        #expect(outcomes([request], horizon: horizon, found: [stored.key: stored.fingerprint]) == [[.expired, .duplicate, .stored]])
        #expect(outcomes([request], horizon: horizon - 1) == [[.stored, .stored, .stored]])
    }

    @Test("The same id in two projects is two events (I9)")
    func projectsAreApart() throws {
        let one = try Sample.request([Sample.event(Sample.id(1))], project: 1)
        let two = try Sample.request([Sample.event(Sample.id(1), properties: ["amount": 1])], project: 2)
        #expect(outcomes([one, two]) == [[.stored], [.stored]])
        #expect(CommitGroup([one, two], horizon: 0).storeGroup.records.count == 2)
    }

    @Test("An event's outcome does not depend on its neighbours (I8)")
    func badNeighbourCostsNothing() throws {
        let request = try Sample.request([Sample.event(Sample.id(5)), Array("[1,2]".utf8), Sample.event(Sample.id(6))])
        #expect(outcomes([request]) == [[.stored, .rejected, .stored]])
    }

    @Test("What installs say is merged: the greatest numbers, the latest word, whatever order it came in (I10)")
    func reportsAreMerged() throws {
        let (one, two) = (Sample.id(77), Sample.id(78))
        let said = [
            EventBatch.Envelope(installID: one, reportVersion: 3, created: 9, acknowledged: 1, held: [2...2], refused: ["quota_full": 4]),
            EventBatch.Envelope(installID: two, created: 5),
            EventBatch.Envelope(installID: one, reportVersion: 2, created: 8, acknowledged: 4, removed: [.init(1...1, reason: "purged")]),
            EventBatch.Envelope(installID: one), EventBatch.Envelope(created: 7),
        ]
        let expected = [
            InstallReport(
                .init(installID: one, reportVersion: 3, created: 9, acknowledged: 4, held: [2...2], refused: ["quota_full": 4]),
                projectID: 1),
            InstallReport(.init(installID: two, created: 5), projectID: 1),
        ]
        for said in [said, said.reversed()] {
            let requests = try said.map { try Sample.request([], envelope: $0) }
            #expect(CommitGroup(requests, horizon: 0).storeGroup.reports == expected)
        }
    }

    @Test("A refusal by the store is that copy's alone: the same content shares it, another is tried again (I8)")
    func refusalIsNotInherited() throws {
        let id = Sample.id(1)
        let request = try Sample.request([
            Sample.event(id, properties: ["a": 1]), Sample.event(id, properties: ["a": 1]), Sample.event(id, properties: ["a": 2]),
        ])
        let group = CommitGroup([request], horizon: 0)
        let problem = EventProblem(.refusedByStore, detail: "test")
        let outcomes = group.outcomes(found: [:], refused: [EventKey(id: id, projectID: 1): problem])
        let results = [.rejected, .rejected, .retry].enumerated().map { Self.result($0, id, $1, problem) }
        #expect(outcomes == [IngestOutcome(received: 3, results: results)])
    }

    private static func result(_ index: Int, _ id: EventID, _ outcome: Receipt.Outcome, _ problem: EventProblem) -> Receipt.Result {
        outcome == .rejected
            ? .init(index: index, eventID: id, outcome: outcome, reason: problem.reason.rawValue, detail: problem.detail)
            : .init(index: index, eventID: id, outcome: outcome)
    }
}
