import HapaxModel
import Testing

@testable import HapaxClient

@Suite("DeliveryStateMachine (D2, D12, D13, I8)", .endsWhenItHangs)
struct DeliveryStateMachineTests {
    private func counters(waiting: Int64, held: Int64 = 0, unreported: Int64 = 0) -> QueueCounters {
        var counters = QueueCounters(of: .derived(name: "install", key: "1"))
        (counters.waiting, counters.held, counters.unreported) = (waiting, held, unreported)
        return counters
    }

    @Test("a batch that is refused is halved down to one event, and grows again with what is accepted")
    func batchIsHalved() {
        var machine = DeliveryStateMachine(batchSize: 50)
        var limits: [Int] = []
        func limit() -> Int {
            if case .batch(.oldest(let limit, _)) = machine.plan(counters(waiting: 100), isManual: true, now: .zero) { limit } else { 0 }
        }
        for count in [50, 25, 12, 6, 3] {
            limits.append(limit())
            #expect(machine.refused(count: count, first: 1, .malformed) == .more)
        }
        limits.append(limit())
        #expect(machine.refused(count: 1, first: 1, .malformed) == .hold)
        #expect(machine.accepted(1) == .bury([1: .malformed]), "what is accepted behind it convicts it")
        limits.append(limit())
        #expect(limits == [50, 25, 12, 6, 3, 1, 2])
    }

    @Test("what is accepted after a rest, or a minute later, convicts nobody; nor does a receipt that keeps everything (D12)")
    func suspicionEnds() {
        for ending in 0..<3 {
            var machine = DeliveryStateMachine(batchSize: 1)
            machine.requested(now: .zero)
            #expect(machine.refused(count: 1, first: 7, .tooManyEvents) == .hold)
            switch ending {
            case 0: machine.rested()
            case 1: _ = machine.plan(counters(waiting: 2, held: 1), isManual: false, now: .seconds(61))
            default: #expect(machine.accepted(0) == .none)
            }
            #expect(machine.accepted(1) == .bury(ending == 2 ? [7: .tooManyEvents] : [:]))
        }
    }

    @Test("what was refused before the server accepted others, and is refused again behind that, is a dead letter (D13)")
    func secondRefusalConvicts() {
        var machine = DeliveryStateMachine(batchSize: 1)
        #expect(machine.refused(count: 1, first: 7, .malformed) == .hold)
        machine.rested()
        #expect(machine.accepted(1) == .bury([:]))
        machine.released([7])
        #expect(machine.refused(count: 1, first: 7, .malformed) == .bury)
        #expect(machine.refused(count: 1, first: 8, .malformed) == .hold, "control")
    }

    @Test("what comes first: events, then what is to be told, then, seldom, one that is held")
    func plansAreInOrder() {
        var machine = DeliveryStateMachine(batchSize: 10)
        #expect(machine.plan(counters(waiting: 3, held: 1, unreported: 1), isManual: false, now: .zero) == .batch(.oldest(limit: 10)))
        #expect(machine.plan(counters(waiting: 1, held: 1, unreported: 1), isManual: false, now: .zero) == .batch(.none))
        #expect(machine.plan(counters(waiting: 1, held: 1), isManual: false, now: .zero) == .batch(.held))
        #expect(machine.plan(counters(waiting: 1, held: 1), isManual: false, now: .seconds(299)) == .onlyHeld)
        #expect(machine.plan(counters(waiting: 1, held: 1), isManual: true, now: .seconds(299)) == .batch(.held))
        #expect(machine.plan(counters(waiting: 1, held: 1), isManual: false, now: .seconds(600)) == .batch(.held))
        #expect(machine.plan(counters(waiting: 0), isManual: true, now: .zero) == .drained)
    }

    @Test("after so many refusals in a row it may be the server: nothing more is sent for a while (I16)")
    func manyRefusalsPause() {
        var machine = DeliveryStateMachine(batchSize: 1)
        let answers = (1...16).map { machine.refused(count: 1, first: $0, .malformed) }
        #expect(answers.dropLast().allSatisfy { $0 == .hold } && answers.last == .holdAndPause)
    }
}
