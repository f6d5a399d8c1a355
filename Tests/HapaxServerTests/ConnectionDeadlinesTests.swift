import NIOCore
import TestSupport
import Testing

@testable import HapaxServer

@Suite("What a connection owes, by a clock that is moved (I13, I17)", .endsWhenItHangs)
struct ConnectionDeadlinesTests {
    private typealias Deadlines = ConnectionDeadlines

    private static func at(_ seconds: Int64) -> NIODeadline { .uptimeNanoseconds(1) + .seconds(seconds) }

    private static func opened() -> Deadlines { Deadlines(limits: ServerLimits(), openedAt: at(0)) }

    /// Plays steps of a second each, given as the second they happen at.
    private static func played(_ steps: [(Int64, Step)]) -> Deadlines {
        var deadlines = opened()
        for (second, step) in steps { _ = step.play(&deadlines, at(second)) }
        return deadlines
    }

    private enum Step {
        case bytes, head, lastHead, body, end, answered, taken, stop, cut

        func play(_ deadlines: inout Deadlines, _ now: NIODeadline) -> Deadlines.Action {
            switch self {
            case .bytes: deadlines.bytesArrived(now)
            case .head: return deadlines.headArrived(now, closes: false)
            case .lastHead: return deadlines.headArrived(now, closes: true)
            case .body: return deadlines.bodyArrived(100, now)
            case .end: return deadlines.requestEnded(now)
            case .answered: deadlines.answerEnded(now)
            case .taken: return deadlines.answerTaken(now)
            case .stop: return deadlines.stopBegan(now)
            case .cut: return deadlines.cut()
            }
            return .none
        }
    }

    @Test(
        "Each state has its deadline, and what happens at it",
        arguments: [
            // A header that does not come, at first and on a kept connection.
            ([], 10, .refuse), ([(1, .head), (1, .end), (2, .answered), (2, .taken), (50, .bytes)], 60, .refuse),
            // A body that stalls; one that drips; one behind a request that is being answered.
            ([(1, .head)], 11, .refuse), ([(1, .head), (4, .body)], 14, .refuse),
            ([(1, .head), (9, .body), (17, .body), (25, .body)], 31, .refuse), ([(1, .head), (1, .end), (2, .head)], 12, .close),
            // Nothing is due while the store works.
            ([(1, .head), (1, .end)], nil, .none),
            // An answer that nobody takes; a connection that rests.
            ([(1, .head), (1, .end), (3, .answered)], 33, .close), ([(1, .head), (1, .end), (3, .answered), (4, .taken)], 79, .close),
            // The rest of a refused body: as long as a body may take.
            ([(1, .head), (2, .answered), (2, .taken), (8, .body)], 18, .close),
            // Graceful stop, while a request is being answered.
            ([(1, .head), (1, .end), (5, .stop)], 12, .close),
        ] as [([(Int64, Step)], Int64?, Deadlines.Action)])
    private func deadlineOfEachState(steps: [(Int64, Step)], due: Int64?, action: Deadlines.Action) {
        var deadlines = Self.played(steps)
        #expect(deadlines.next == due.map(Self.at))
        guard let due else { return }
        #expect(deadlines.expired(Self.at(due) - .nanoseconds(1)) == .none)
        #expect(deadlines.expired(Self.at(due)) == action)
    }

    @Test("A request refused before its body has come says that it closes, and its rest is thrown away up to the limit")
    func restOfRefusedBodyIsDiscarded() {
        var deadlines = Self.played([(0, .head), (0, .body)])
        #expect(deadlines.answerCloses)
        deadlines.answerEnded(Self.at(1))
        #expect(deadlines.isDiscarding && deadlines.answerTaken(Self.at(1)) == .none)
        #expect(deadlines.bodyArrived(ServerLimits.discardedBytes, Self.at(2)) == .discard)
        #expect(deadlines.requestEnded(Self.at(3)) == .close)
        var tooMuch = Self.played([(0, .head), (0, .answered), (0, .taken)])
        #expect(tooMuch.bodyArrived(ServerLimits.discardedBytes, Self.at(1)) == .discard)
        #expect(tooMuch.bodyArrived(1, Self.at(1)) == .close)
        var crumbs = Self.played([(0, .head), (0, .answered), (0, .taken)])
        for _ in 0...ServerLimits.smallParts { #expect([.discard, .close].contains(crumbs.bodyArrived(1, Self.at(1)))) }
        #expect(crumbs.bodyArrived(1, Self.at(1)) == .close)
        // A pipelined request behind a refused one is not looked at.
        var next = Self.played([(0, .head), (0, .answered), (0, .end)])
        #expect(next.headArrived(Self.at(1), closes: false) == .discard && next.answerTaken(Self.at(1)) == .close)
    }

    @Test("Whoever asks for the end gets it once the answer was taken; a pipelined answer before it does not close")
    func endIsKept() {
        var deadlines = Self.played([(0, .head), (0, .end), (0, .lastHead), (0, .end)])
        #expect(!deadlines.answerCloses)
        deadlines.answerEnded(Self.at(1))
        #expect(deadlines.answerTaken(Self.at(1)) == .none && deadlines.answerCloses)
        deadlines.answerEnded(Self.at(2))
        #expect(deadlines.answerTaken(Self.at(2)) == .close)
    }

    @Test(
        "Graceful stop ends at once what rests or has not wholly arrived; what is being answered ends behind its answer",
        arguments: [
            ([], .close), ([(0, .head)], .close), ([(0, .head), (0, .end), (0, .answered), (0, .taken)], .close),
            ([(0, .head), (0, .end)], .none), ([(0, .head), (0, .end), (0, .answered)], .none),
            ([(0, .head), (0, .end), (0, .head)], .none),
        ] as [([(Int64, Step)], Deadlines.Action)])
    private func stopEndsConnections(steps: [(Int64, Step)], action: Deadlines.Action) {
        var deadlines = Self.played(steps)
        #expect(deadlines.stopBegan(Self.at(1)) == action)
        guard action == .none, steps.count == 2 else { return }
        #expect(deadlines.answerCloses)
        deadlines.answerEnded(Self.at(2))
        #expect(deadlines.answerTaken(Self.at(2)) == .close)
    }

    @Test("Behind a hundred unanswered requests, and once a stop has begun, no further one is taken; an answer to no request is the last")
    func requestsAreBounded() {
        var deadlines = Self.opened()
        for _ in 0..<ServerLimits.pipelinedRequests {
            let (head, end) = (deadlines.headArrived(Self.at(1), closes: false), deadlines.requestEnded(Self.at(1)))
            #expect(head == .forward && end == .forward)
        }
        #expect(deadlines.headArrived(Self.at(1), closes: false) == .close)
        var stopping = Self.played([(0, .head), (0, .end), (0, .stop)])
        #expect(stopping.headArrived(Self.at(1), closes: false) == .discard)
        var nothing = Self.opened()
        nothing.answerEnded(Self.at(1))
        #expect(nothing.answerTaken(Self.at(1)) == .close)
    }

    @Test("When a body is cut for want of memory its sender is told, unless another answer is due first")
    func cutIsAnswered() {
        var alone = Self.played([(0, .head), (0, .body)])
        #expect(alone.cut() == .refuse)
        var behind = Self.played([(0, .head), (0, .end), (0, .head), (0, .body)])
        #expect(behind.cut() == .close)
    }

    @Test("An answer that goes on is due for as long as nothing of it is taken, and only then")
    func unreadAnswerIsDue() {
        var deadlines = Self.played([(0, .bytes), (0, .head), (0, .end)])
        #expect(deadlines.next == nil)
        deadlines.roomChanged(Self.at(100), hasRoom: false)
        #expect(deadlines.next == Self.at(130))
        deadlines.roomChanged(Self.at(120), hasRoom: true)
        #expect(deadlines.next == nil)
        deadlines.roomChanged(Self.at(200), hasRoom: false)
        #expect(deadlines.expired(Self.at(229)) == .none && deadlines.expired(Self.at(230)) == .close)
        // One that went before and is taken late changes nothing about that.
        deadlines = Self.played([(0, .bytes), (0, .head), (0, .end), (0, .head), (0, .end), (1, .answered)])
        deadlines.roomChanged(Self.at(2), hasRoom: false)
        _ = deadlines.answerTaken(Self.at(20))
        #expect(deadlines.expired(Self.at(50)) == .close)
    }
}

@Suite("Who has to go, by a clock that is moved (I13)", .endsWhenItHangs)
struct ConnectionTableTests {
    private static func at(_ seconds: Int64) -> NIODeadline { .uptimeNanoseconds(1) + .seconds(seconds) }

    private static func table(connections: Int = 3, bytes: Int = 100) -> ConnectionTable {
        var limits = ServerLimits()
        (limits.connections, limits.arrivingBytes) = (connections, bytes)
        return ConnectionTable(limits: limits)
    }

    @Test("At the limit the longest idle one goes, then the slowest to arrive, then who does not read; never who is being answered")
    func longestIdleGoesFirst() {
        var table = Self.table()
        for id: UInt64 in 1...3 { #expect(table.opened(id, Self.at(Int64(id))) == nil) }
        #expect(table.opened(4, Self.at(4)) == 1)
        table.changed(3, .idle, Self.at(5))
        table.changed(2, .idle, Self.at(6))
        #expect(table.opened(5, Self.at(7)) == 3)
        for id: UInt64 in 1...5 { table.changed(id, .answering, Self.at(8)) }
        table.changed(2, .answered, Self.at(9))
        #expect(table.opened(6, Self.at(10)) == 2)
        table.changed(2, .answering, Self.at(11))
        table.changed(6, .answering, Self.at(11))
        #expect(table.opened(7, Self.at(12)) == 7)
        // When the system itself has no room, nobody who is being answered goes either.
        #expect(table.shed() == nil)
        for id: UInt64 in 1...7 { table.closed(id) }
        #expect(table.count == 0)
    }

    @Test("Whoever was told to go is not told again, and does not count, though it is still there: a burst sheds as many as it brings")
    func burstShedsAsManyAsItBrings() {
        var table = Self.table(connections: 10)
        for id: UInt64 in 1...10 {
            _ = table.opened(id, Self.at(0))
            table.changed(id, .idle, Self.at(Int64(id)))
        }
        let shed = (11...20).map { table.opened(UInt64($0), Self.at(30)) }
        #expect(shed == (1...10).map { UInt64($0) })
        #expect(table.count == 10)
        for id: UInt64 in 1...10 { table.closed(id) }
        #expect(table.count == 10)
        // One of those that came last, since all others have gone.
        let next = table.shed() ?? 0
        #expect((11...20).contains(next))
    }

    @Test("S17: whoever took a phase first goes first, after any number of changes, as if all had been looked through")
    func chainsFindTheFirst() {
        var random = SeededRandom.printed()
        var (table, known) = (Self.table(connections: 1_000), [(id: UInt64, phase: ConnectionTable.Phase)]())
        let phases: [ConnectionTable.Phase] = [.idle, .arriving, .answered, .answering]
        for number: UInt64 in 1...5_000 {
            switch Int.random(in: 0..<4, using: &random) {
            case 0:
                _ = table.opened(number, Self.at(0))
                known.append((number, .arriving))
            case 1 where !known.isEmpty:
                let place = Int.random(in: 0..<known.count, using: &random)
                let phase = phases[Int.random(in: 0..<4, using: &random)]
                let id = known[place].id
                table.changed(id, phase, Self.at(0))
                guard known[place].phase != phase else { continue }
                known.remove(at: place)
                known.append((id, phase))
            case 2 where !known.isEmpty: table.closed(known.remove(at: Int.random(in: 0..<known.count, using: &random)).id)
            default:
                let first = phases.dropLast().lazy.compactMap { phase in known.firstIndex { $0.phase == phase } }.first
                #expect(table.shed() == first.map { known[$0].id })
                if let first { known.remove(at: first) }
            }
        }
    }

    @Test("When bodies fill the room the slowest gives way; nobody faster does; one alone always has room")
    func slowestBodyGivesWay() {
        var table = Self.table(connections: 10)
        for id: UInt64 in 1...4 { _ = table.opened(id, Self.at(0)) }
        #expect(table.bytesArrived(1, 500, Self.at(1)) == .admitted)
        table.release(1)
        #expect(table.bytesArrived(1, 10, Self.at(10)) == .admitted)
        #expect(table.bytesArrived(2, 60, Self.at(10)) == .admitted)
        #expect(table.bytesArrived(3, 30, Self.at(10)) == .admitted)
        #expect(table.bytesArrived(2, 5, Self.at(11)) == .cut(1))
        // What still comes of it is not counted again.
        #expect(table.bytesArrived(1, 50, Self.at(11)) == .admitted)
        #expect(table.arrivingBytes == 95)
        // The slowest asks for more itself.
        #expect(table.bytesArrived(3, 20, Self.at(12)) == .refused)
        // What has wholly arrived is not cut for others.
        table.changed(2, .answering, Self.at(12))
        table.changed(3, .answering, Self.at(12))
        #expect(table.bytesArrived(4, 20, Self.at(13)) == .refused)
        table.release(2)
        #expect(table.bytesArrived(4, 20, Self.at(13)) == .admitted)
        table.closed(3)
        table.closed(4)
        #expect(table.arrivingBytes == 0)
    }
}
