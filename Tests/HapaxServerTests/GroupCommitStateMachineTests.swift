import TestSupport
import Testing

@testable import HapaxServer

@Suite("Group commit decides as a value")
struct GroupCommitStateMachineTests {
    typealias Machine = GroupCommitStateMachine<Int>

    private func limits(events: Int = 10, bytes: Int = 1_000) -> Machine.Limits {
        var limits = Machine.Limits()
        limits.groupEvents = events
        limits.waitingBytes = bytes
        return limits
    }

    @Test("The first arrival is committed at once")
    func firstArrivalCommitsAtOnce() {
        var machine = Machine(limits: limits())
        #expect(machine.writerBecameFree(0).isWait)
        #expect(machine.requestArrived(1, events: 1, bytes: 1) == .commit(writer: 0))
        #expect(machine.writerBecameFree(0).group == [1])
    }

    @Test("Arrivals during a commit form the next group, in order")
    func arrivalsDuringCommitFormNextGroup() {
        var machine = Machine(limits: limits())
        _ = machine.writerBecameFree(0)
        _ = machine.requestArrived(1, events: 1, bytes: 1)
        _ = machine.writerBecameFree(0)
        #expect(machine.requestArrived(2, events: 1, bytes: 1) == .waiting)
        #expect(machine.requestArrived(3, events: 1, bytes: 1) == .waiting)
        #expect(machine.writerBecameFree(0).group == [2, 3])
        #expect(machine.writerBecameFree(0).isWait)
    }

    @Test("A group ends before the request that would make it too large; one request alone is never split")
    func groupIsBoundedAndRequestsStayWhole() {
        var machine = Machine(limits: limits(events: 10))
        for (item, events) in [(1, 4), (2, 6), (3, 1), (4, 25), (5, 1)] {
            #expect(machine.requestArrived(item, events: events, bytes: 1) == .waiting)
        }
        #expect(machine.writerBecameFree(0).group == [1, 2])
        #expect(machine.writerBecameFree(0).group == [3])
        #expect(machine.writerBecameFree(0).group == [4])
        #expect(machine.writerBecameFree(0).group == [5])
    }

    @Test("What waits is bounded in bytes, to the byte; a single request is always taken (I13)")
    func waitingIsBoundedInBytes() {
        var machine = Machine(limits: limits(bytes: 100))
        #expect(machine.requestArrived(1, events: 1, bytes: 500) == .waiting)
        #expect(machine.requestArrived(2, events: 1, bytes: 1) == .overloaded)
        #expect(machine.writerBecameFree(0).group == [1])
        #expect(machine.requestArrived(3, events: 1, bytes: 60) == .waiting)
        #expect(machine.requestArrived(4, events: 1, bytes: 40) == .waiting)
        #expect(machine.requestArrived(5, events: 1, bytes: 1) == .overloaded)
        #expect(machine.waitingBytes == 100)
        #expect(machine.writerBecameFree(0).group == [3, 4])
        #expect(machine.waitingBytes == 0)
    }

    @Test("Two idle writers are named once each")
    func eachIdleWriterIsNamedOnce() {
        var machine = Machine(limits: limits())
        _ = machine.writerBecameFree(0)
        _ = machine.writerBecameFree(1)
        var named: Set<Int> = []
        for item in 1...2 {
            if case .commit(let writer) = machine.requestArrived(item, events: 1, bytes: 1) { named.insert(writer) }
        }
        #expect(named == [0, 1])
        #expect(machine.requestArrived(3, events: 1, bytes: 1) == .waiting)
    }

    @Test("Stopping takes nothing new, commits what waits, then ends the writers (I17)")
    func stoppingCommitsWhatWaits() {
        var machine = Machine(limits: limits())
        _ = machine.writerBecameFree(1)
        #expect(machine.requestArrived(1, events: 1, bytes: 1) == .commit(writer: 1))
        _ = machine.writerBecameFree(1)
        _ = machine.requestArrived(2, events: 1, bytes: 1)
        #expect(machine.stopRequested() == [])
        #expect(machine.requestArrived(3, events: 1, bytes: 1) == .stopping)
        #expect(machine.writerBecameFree(1).group == [2])
        #expect(machine.writerBecameFree(1).isEnd)
    }

    @Test("Random histories: every accepted request is committed exactly once, in order", arguments: 0..<200)
    func randomHistoriesCommitEachRequestOnce(seed: Int) {
        var random = SeededRandom(seed: UInt64(seed))
        var machine = Machine(limits: limits(events: 7, bytes: 60))
        var accepted: [Int] = []
        var committed: [Int] = []
        var idle: Set<Int> = []
        for item in 0..<300 {
            if Bool.random(using: &random) {
                switch machine.requestArrived(item, events: .random(in: 0...9, using: &random), bytes: .random(in: 1...30, using: &random))
                {
                case .waiting: accepted.append(item)
                case .commit(let writer):
                    accepted.append(item)
                    #expect(idle.remove(writer) != nil)
                    committed += machine.writerBecameFree(writer).group ?? []
                case .overloaded, .stopping: break
                }
            } else {
                let writer = Int.random(in: 0..<3, using: &random)
                guard !idle.contains(writer) else { continue }
                let work = machine.writerBecameFree(writer)
                if work.isWait { idle.insert(writer) } else { committed += work.group ?? [] }
            }
        }
        for writer in machine.stopRequested() { idle.remove(writer) }
        while let group = machine.writerBecameFree(9).group { committed += group }
        #expect(committed == accepted)
        #expect(!accepted.isEmpty)
    }
}

extension GroupCommitStateMachine.Work {
    fileprivate var group: [Item]? {
        if case .commit(let group) = self { group } else { nil }
    }
    fileprivate var isWait: Bool {
        if case .wait = self { true } else { false }
    }
    fileprivate var isEnd: Bool {
        if case .end = self { true } else { false }
    }
}
