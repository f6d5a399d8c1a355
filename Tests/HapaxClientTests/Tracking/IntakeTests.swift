import HapaxModel
import Testing

@testable import HapaxClient

@Suite("Intake (R8, R12, I7, I12, I13)", .timeLimit(.minutes(20)))
struct IntakeTests {
    private func intake(capacity: Int = 4, last: Int64 = 0, ids: Set<EventID> = []) -> Intake {
        Intake(lastSequence: last, waitingIDs: ids, capacity: capacity)
    }

    private func admit(_ intake: inout Intake, id: EventID? = nil, now: Int64 = 1_763_680_000_000) -> Intake.Admission {
        intake.admit(name: "event", properties: [:], id: id, time: nil, distinctID: "u", now: now)
    }

    private func sequence(_ admission: Intake.Admission) -> Int64? {
        if case .admitted(_, let sequence, _) = admission { sequence } else { nil }
    }

    private func prepared(_ entry: Intake.Entry) -> PreparedEvent {
        PreparedEvent(
            id: entry.event?.id ?? .derived(name: "", key: ""), sequence: entry.event?.sequence, time: 1, bytes: [],
            reserved: entry.reserved)
    }

    @Test("an id waits as long as any of those that were taken behind the first is not committed: none of them takes a sequence (R12, I7)")
    func repeatsKeepTheirID() {
        var intake = intake()
        guard case .admitted(let id, 1, _) = admit(&intake) else { return }
        for _ in 1...2 { #expect(sequence(admit(&intake, id: id)) == nil) }
        // The first is delivered, or only a dead letter.
        intake.committed([prepared(intake.mailbox[0])])
        intake.waitingChanged(.removed([id]))
        #expect(sequence(admit(&intake, id: id)) == nil && intake.created == 1)
        let repeats = intake.mailbox[1...].map(prepared)
        intake.committed([repeats[0], repeats[1]])
        #expect(intake.isWaiting(id))
        intake.committed([repeats[2]])
        #expect(!intake.isWaiting(id))
        #expect(sequence(admit(&intake, id: id)) == 2)
        intake.waitingChanged(.added([id]))
        #expect(intake.isWaiting(id) && sequence(admit(&intake, id: id)) == nil)
    }

    @Test("an id whose event was lost with a damaged file can be tracked again (R12, I11)")
    func lostIDIsFree() {
        let id = EventID.derived(name: "order", key: "lost")
        var intake = Intake(lastSequence: 0, waitingIDs: [id], capacity: 10)
        func track() -> Bool {
            let admission = intake.admit(name: "e", properties: [:], id: id, time: nil, distinctID: "u", now: 1)
            if case .admitted = admission { return true }
            return false
        }
        let before = track()
        intake.waitingChanged(.forgotten)
        let after = track()
        #expect(!before && after)
    }

    @Test("sequences go on from the last one given (I7), and the first event wakes the drainer, once")
    func sequencesGoOn() {
        var intake = intake(last: 41)
        guard case .admitted(_, 42, true) = admit(&intake), case .admitted(_, 43, false) = admit(&intake) else {
            Issue.record("42 wakes, 43 does not")
            return
        }
        #expect(intake.mailbox.compactMap(\.event?.sequence) == [42, 43])
    }

    @Test("a full mailbox refuses, counts, and gives no sequence (I12, I13); tested at n and n + 1")
    func fullMailboxTakesNoSequence() {
        var intake = intake(capacity: 2)
        #expect(sequence(admit(&intake)) == 1)
        #expect(sequence(admit(&intake)) == 2)
        #expect(sequence(admit(&intake)) == nil)
        #expect(intake.uncounted == ["mailbox_full": 1])
        intake.committed([prepared(intake.mailbox[0])])
        #expect(sequence(admit(&intake)) == 3)
    }

    @Test("the mailbox is bounded in bytes as well: at the limit, one beyond, and one event that is larger by itself (I13)")
    func mailboxIsBoundedInBytes() {
        func admit(_ intake: inout Intake, bytes: Int) -> Int64? {
            let fill = PropertyValue.string(String(repeating: "x", count: bytes))
            let admission = intake.admit(name: "event", properties: ["k": fill], id: nil, time: nil, distinctID: "u", now: 1)
            return sequence(admission)
        }
        let overhead = Int(QueueUsage.bytes("event", "u") + QueueUsage.bytes(of: ["k": ""]))
        var intake = Intake(lastSequence: 0, waitingIDs: [], capacity: 100, maximumBytes: 1_000)
        #expect(admit(&intake, bytes: 500 - overhead) == 1 && admit(&intake, bytes: 501 - overhead) == nil)
        #expect(admit(&intake, bytes: 500 - overhead) == 2 && intake.uncommitted == QueueUsage(events: 2, bytes: 1_000))
        #expect(intake.uncounted == ["mailbox_full": 1])
        intake.committed(intake.mailbox.map(prepared))
        #expect(admit(&intake, bytes: 5_000) == 3, "it would never be taken otherwise, and belongs to the dead letters")
        #expect(admit(&intake, bytes: 0) == nil)
    }

    @Test("what an event is laid over takes room as well, unless its properties hold it already (I13)")
    func baseTakesRoom() throws {
        var intake = intake()
        intake.context.superProperties = ["super": "value"]
        for isComplete in [true, false] {
            _ = intake.admit(name: "event", properties: [:], id: nil, time: nil, distinctID: "u", now: 1, isComplete: isComplete)
        }
        let (complete, laidOver) = (intake.mailbox[0], intake.mailbox[1])
        #expect(complete.base.byteCount == EncodedProperties.none.byteCount && laidOver.base.byteCount > complete.base.byteCount)
        #expect(laidOver.reserved.bytes - complete.reserved.bytes == Int64(laidOver.base.byteCount - complete.base.byteCount))
    }

    @Test("who waits is told once a commit has failed, and what only waited leaves the mailbox, which a store that fails would fill (I13)")
    func marksLeaveTheMailbox() {
        var intake = intake()
        _ = admit(&intake)
        for _ in 0..<3 { _ = intake.mark(CommitWaiter()) }
        let waiters = intake.takeWaiters()
        #expect(waiters.count == 3 && intake.mailbox.compactMap(\.event?.sequence) == [1] && intake.mailbox.count == 1)
    }

    @Test("what the drainer has taken still fills the mailbox until it is committed (I13)")
    func takenEventsCount() {
        var intake = intake(capacity: 1)
        #expect(sequence(admit(&intake)) == 1)
        var entries: [Intake.Entry] = []
        intake.take(into: &entries)
        #expect(entries.count == 1)
        #expect(sequence(admit(&intake)) == nil)
    }

    @Test("a caller's id that waits keeps the first and takes no sequence (R12)")
    func waitingIDKeepsTheFirst() {
        let id = EventID.derived(name: "order", key: "1")
        var intake = intake()
        #expect(sequence(admit(&intake, id: id)) == 1)
        guard case .alreadyQueued(id, _) = admit(&intake, id: id) else {
            Issue.record("the id waits")
            return
        }
        #expect(intake.created == 1)
        intake.waitingChanged(.removed([id]))
        #expect(sequence(admit(&intake, id: id)) == 2, "delivered: it may come again")
    }

    @Test("an id that was made here and is given back keeps the first, too, and takes no sequence (R12, I7)")
    func ownIDGivenBackKeepsTheFirst() {
        var intake = intake()
        guard case .admitted(let id, 1, _) = admit(&intake), case .admitted(id, nil, _) = admit(&intake, id: id) else {
            Issue.record("the id waits")
            return
        }
        #expect(intake.created == 1)
        intake.committed(intake.mailbox.map(prepared))
        intake.waitingChanged(.removed([id]))
        #expect(sequence(admit(&intake, id: id)) == 2)
    }

    @Test("an event under an id that waits takes room as any other, so that nothing is taken in that nobody may keep (R12)")
    func repeatedIDTakesRoom() {
        var intake = intake(capacity: 2)
        guard case .admitted(let id, 1, _) = admit(&intake) else { return }
        guard case .admitted(id, nil, _) = admit(&intake, id: id), case .refused(.mailboxFull) = admit(&intake, id: id) else {
            Issue.record("two have room")
            return
        }
        #expect(intake.uncommitted.events == 2 && intake.uncounted == ["mailbox_full": 1])
    }

    @Test("ids loaded from the queue count as waiting (R12)")
    func loadedIDWaits() {
        let id = EventID.derived(name: "order", key: "1")
        var intake = intake(ids: [id])
        #expect(sequence(admit(&intake, id: id)) == nil)
    }

    @Test("once closed everything is refused (I12)")
    func closedRefuses() {
        var intake = intake()
        intake.close()
        guard case .refused(.shutDown) = admit(&intake) else {
            Issue.record("refused")
            return
        }
    }

    @Test("the drainer may rest only when nothing came meanwhile; then the next event wakes it")
    func restIsLinearWithAdmission() {
        var intake = intake()
        _ = admit(&intake)
        let rests = intake.rest()
        #expect(!rests)
        var entries: [Intake.Entry] = []
        intake.take(into: &entries)
        let restsNow = intake.rest()
        #expect(restsNow)
        guard case .admitted(_, _, true) = admit(&intake) else {
            Issue.record("wakes")
            return
        }
    }

    @Test("ids increase even when the clock runs backwards (I7)")
    func idsIncreaseAgainstTheClock() {
        var intake = intake()
        _ = admit(&intake, now: 2_000)
        _ = admit(&intake, now: 1_000)
        let ids = intake.mailbox.compactMap(\.event?.id)
        #expect(ids[0] < ids[1])
    }
}
