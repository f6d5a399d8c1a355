import HapaxModel
import Testing

@testable import HapaxClient

@Suite("Intake (R8, R12, I7, I12, I13)", .endsWhenItHangs)
struct IntakeTests {
    private func intake(capacity: Int = 4) -> Intake { Intake(capacity: capacity) }

    private func admit(_ intake: inout Intake, id: EventID = .made, now: Int64 = 1_763_680_000_000) -> Intake.Admission {
        intake.admit(name: "event", properties: [:], id: id, time: nil, distinctID: "u", now: now)
    }

    private func isAdmitted(_ admission: Intake.Admission) -> Bool {
        if case .admitted = admission { true } else { false }
    }

    private func prepared(_ entry: Intake.Entry) -> PreparedEvent {
        PreparedEvent(
            id: entry.event?.id ?? .derived(name: "", key: ""), time: 1, bytes: [], reserved: entry.reserved)
    }

    @Test("a full mailbox refuses and counts (I12, I13); tested at n and n + 1")
    func fullMailboxTakesNoSequence() {
        var intake = intake(capacity: 2)
        #expect(isAdmitted(admit(&intake)))
        #expect(isAdmitted(admit(&intake)))
        #expect(!isAdmitted(admit(&intake)))
        #expect(intake.uncounted == ["mailbox_full": 1])
        intake.committed([prepared(intake.mailbox[0])])
        #expect(isAdmitted(admit(&intake)))
    }

    @Test("the mailbox is bounded in bytes as well: at the limit, one beyond, and one event that is larger by itself (I13)")
    func mailboxIsBoundedInBytes() {
        func admit(_ intake: inout Intake, bytes: Int) -> Bool {
            let fill = PropertyValue.string(String(repeating: "x", count: bytes))
            let admission = intake.admit(name: "event", properties: ["k": fill], id: .made, time: nil, distinctID: "u", now: 1)
            return isAdmitted(admission)
        }
        let overhead = Int(QueueUsage.bytes("event", "u") + QueueUsage.bytes(of: ["k": ""]))
        var intake = Intake(capacity: 100, maximumBytes: 1_000)
        #expect(admit(&intake, bytes: 500 - overhead) && !admit(&intake, bytes: 501 - overhead))
        #expect(admit(&intake, bytes: 500 - overhead) && intake.uncommitted == QueueUsage(events: 2, bytes: 1_000))
        #expect(intake.uncounted == ["mailbox_full": 1])
        intake.committed(intake.mailbox.map(prepared))
        #expect(admit(&intake, bytes: 5_000), "it would never be taken otherwise, and belongs to the dead letters")
        #expect(!admit(&intake, bytes: 0))
    }

    @Test("what an event is laid over takes room as well, unless its properties hold it already (I13)")
    func baseTakesRoom() throws {
        var intake = intake()
        intake.context.common = ["super": "value"]
        for isComplete in [true, false] {
            _ = intake.admit(name: "event", properties: [:], id: .made, time: nil, distinctID: "u", now: 1, isComplete: isComplete)
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
        #expect(waiters.count == 3 && intake.mailbox.compactMap(\.event).count == 1 && intake.mailbox.count == 1)
    }

    @Test("what the writer has taken still fills the mailbox until it is committed (I13)")
    func takenEventsCount() {
        var intake = intake(capacity: 1)
        #expect(isAdmitted(admit(&intake)))
        var entries: [Intake.Entry] = []
        intake.take(into: &entries)
        #expect(entries.count == 1)
        #expect(!isAdmitted(admit(&intake)))
    }

    @Test(
        "an event under an id that waits, derived or not, takes room as any other, with who waits for it, so that nothing is taken in that nobody may keep (R12)"
    )
    func repeatedIDTakesRoom() {
        var intake = intake(capacity: 2)
        guard case .admitted(let id, _) = admit(&intake) else { return }
        guard case .admitted(id, _) = admit(&intake, id: id), case .refused(.mailboxFull) = admit(&intake, id: id) else {
            Issue.record("two have room")
            return
        }
        #expect(intake.uncommitted.events == 2 && intake.uncounted == ["mailbox_full": 1])
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

    @Test("the writer may rest only when nothing came meanwhile; then the next event wakes it")
    func restIsLinearWithAdmission() {
        var intake = intake()
        _ = admit(&intake)
        let rests = intake.rest()
        #expect(!rests)
        var entries: [Intake.Entry] = []
        intake.take(into: &entries)
        let restsNow = intake.rest()
        #expect(restsNow)
        guard case .admitted(_, true) = admit(&intake) else {
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
