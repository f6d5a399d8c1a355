import TestSupport
import Testing

@testable import HapaxServer

@Suite("Group commit decides as a value", .endsWhenItHangs)
struct GroupCommitStateMachineTests {
    typealias Machine = GroupCommitStateMachine<Int>

    private func limits(events: Int = 10, bytes: Int = 1_000) -> Machine.Limits {
        var limits = Machine.Limits()
        limits.groupEvents = events
        limits.heldBytes = bytes
        return limits
    }

    @Test("The first arrival is committed at once")
    func firstArrivalCommitsAtOnce() {
        var machine = Machine(limits: limits())
        #expect(machine.writerBecameFree(0).isWait)
        #expect(machine.arrive(1, events: 1, bytes: 1) == .commit(writer: 0))
        #expect(machine.writerBecameFree(0).group == [1])
    }

    @Test("Arrivals during a commit form the next group, in order")
    func arrivalsDuringCommitFormNextGroup() {
        var machine = Machine(limits: limits())
        _ = machine.writerBecameFree(0)
        _ = machine.arrive(1, events: 1, bytes: 1)
        _ = machine.writerBecameFree(0)
        #expect(machine.arrive(2, events: 1, bytes: 1) == .waiting)
        #expect(machine.arrive(3, events: 1, bytes: 1) == .waiting)
        #expect(machine.writerBecameFree(0).group == [2, 3])
        #expect(machine.writerBecameFree(0).isWait)
    }

    @Test("A group ends before the request that would make it too large; one request alone is never split")
    func groupIsBoundedAndRequestsStayWhole() {
        var machine = Machine(limits: limits(events: 10))
        for (item, events) in [(1, 4), (2, 6), (3, 1), (4, 25), (5, 1)] {
            #expect(machine.arrive(item, events: events, bytes: 1) == .waiting)
        }
        #expect(machine.writerBecameFree(0).group == [1, 2])
        #expect(machine.writerBecameFree(0).group == [3])
        #expect(machine.writerBecameFree(0).group == [4])
        #expect(machine.writerBecameFree(0).group == [5])
    }

    @Test("What is held is bounded in bytes, to the byte, until its group has ended; a single request is always taken (I13)")
    func heldIsBoundedInBytes() {
        var machine = Machine(limits: limits(bytes: 100))
        #expect(machine.arrive(1, events: 1, bytes: 500) == .waiting)
        #expect(machine.arrive(2, events: 1, bytes: 1) == .overloaded)
        #expect(machine.writerBecameFree(0).group == [1])
        #expect(machine.arrive(2, events: 1, bytes: 1) == .overloaded)
        #expect(machine.writerBecameFree(0).isWait && machine.heldBytes == 0)
        #expect(machine.arrive(3, events: 1, bytes: 60) == .commit(writer: 0))
        #expect(machine.writerBecameFree(0).group == [3])
        #expect(machine.arrive(4, events: 1, bytes: 40) == .waiting)
        #expect(machine.arrive(5, events: 1, bytes: 1) == .overloaded)
        #expect(machine.writerBecameFree(0).group == [4])
        #expect(machine.heldBytes == 40)
        #expect(machine.writerBecameFree(0).isWait && machine.heldBytes == 0)
    }

    @Test("A group ends before the request that would make it too many bytes (I13)")
    func groupIsBoundedInBytes() {
        var limits = limits(bytes: 10_000)
        limits.groupBytes = 100
        var machine = Machine(limits: limits)
        for (item, bytes) in [(1, 60), (2, 40), (3, 101), (4, 100), (5, 1)] {
            #expect(machine.arrive(item, events: 1, bytes: bytes) == .waiting)
        }
        #expect((0..<4).map { machine.writerBecameFree($0).group } == [[1, 2], [3], [4], [5]])
    }

    @Test(
        "A project has all of the room as long as it is alone, half beside others, all again ten seconds after they fell silent (I9, I13)")
    func roomIsShared() {
        var machine = Machine(limits: limits(bytes: 100))
        #expect(machine.arrive(1, project: 1, bytes: 60) == .waiting)
        #expect(machine.arrive(2, project: 2, bytes: 10) == .waiting)
        #expect(machine.arrive(3, project: 1, bytes: 1) == .projectBusy)
        #expect(machine.arrive(4, project: 2, bytes: 30) == .waiting)
        #expect(machine.arrive(5, project: 3, bytes: 1) == .overloaded)
        #expect(machine.writerBecameFree(0).group == [1, 2, 4])
        #expect(machine.writerBecameFree(0).isWait)
        #expect(machine.arrive(6, project: 1, bytes: 20, seconds: 9) == .commit(writer: 0))
        #expect(machine.arrive(7, project: 1, bytes: 40, seconds: 9) == .projectBusy)
        #expect(machine.arrive(8, project: 1, bytes: 40, seconds: 21) == .waiting)
    }

    @Test("Two idle writers are named once each")
    func eachIdleWriterIsNamedOnce() {
        var machine = Machine(limits: limits())
        _ = machine.writerBecameFree(0)
        _ = machine.writerBecameFree(1)
        var named: Set<Int> = []
        for item in 1...2 {
            if case .commit(let writer) = machine.arrive(item, events: 1, bytes: 1) { named.insert(writer) }
        }
        #expect(named == [0, 1])
        #expect(machine.arrive(3, events: 1, bytes: 1) == .waiting)
    }

    @Test("Stopping takes nothing new, commits what waits, then ends the writers (I17)")
    func stoppingCommitsWhatWaits() {
        var machine = Machine(limits: limits())
        _ = machine.writerBecameFree(1)
        #expect(machine.arrive(1, events: 1, bytes: 1) == .commit(writer: 1))
        _ = machine.writerBecameFree(1)
        _ = machine.arrive(2, events: 1, bytes: 1)
        #expect(machine.stopRequested() == [])
        #expect(machine.arrive(3, events: 1, bytes: 1) == .stopping)
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
                switch machine.arrive(item, events: .random(in: 0...9, using: &random), bytes: .random(in: 1...30, using: &random))
                {
                case .waiting: accepted.append(item)
                case .commit(let writer):
                    accepted.append(item)
                    #expect(idle.remove(writer) != nil)
                    committed += machine.writerBecameFree(writer).group ?? []
                case .overloaded, .projectBusy, .stopping: break
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

extension GroupCommitStateMachine<Int> {
    fileprivate mutating func arrive(_ item: Int, project: Int32 = 1, events: Int = 1, bytes: Int, seconds: Int = 0) -> Admission {
        requestArrived(item, project: project, events: events, bytes: bytes, now: start + .seconds(seconds))
    }
}

private let start = ContinuousClock.now

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
