import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

@Suite("Turns of work, by project (I9, I13)", .endsWhenItHangs)
struct TurnsTests {
    @Test("the project that has used least goes first, its oldest request before the others; alone one has all places")
    func leastUsedGoesFirst() {
        var queue = TurnQueue<Int>(places: 2, maximumWaiting: 10)
        #expect(queue.arrived(1, of: 1) == .works(place: 0) && queue.arrived(2, of: 1) == .works(place: 1))
        for item in 3...5 { #expect(queue.arrived(item, of: 1) == .waits) }
        #expect(queue.ended(1, at: 0, used: .seconds(1)) == 3)
        #expect(queue.arrived(6, of: 2) == .waits)
        #expect(queue.arrived(7, of: 2) == .waits)
        #expect(queue.ended(1, at: 1, used: .seconds(1)) == 6, "as much as the least of the others, and a lower number")
        #expect(queue.ended(2, at: 1, used: .seconds(5)) == 4, "it has used more now")
        #expect(queue.ended(1, at: 0, used: .seconds(1)) == 5 && queue.ended(1, at: 1, used: .seconds(1)) == 7 && queue.waitingCount == 0)
        #expect(queue.ended(1, at: 0, used: .zero) == nil && queue.ended(2, at: 1, used: .zero) == nil)
        #expect(queue.arrived(8, of: 2) == .works(place: 1), "the place that was left last")
    }

    @Test("who waits longest does not save up: a project that comes back begins where the least of the others is")
    func nothingIsSavedUp() {
        var queue = TurnQueue<String>(places: 1, maximumWaiting: 10)
        #expect(queue.arrived("a", of: 1) == .works(place: 0) && queue.arrived("b", of: 1) == .waits && queue.arrived("c", of: 1) == .waits)
        #expect(queue.ended(1, at: 0, used: .seconds(100)) == "b")
        #expect(queue.arrived("x", of: 2) == .waits && queue.arrived("y", of: 2) == .waits)
        #expect(queue.ended(1, at: 0, used: .seconds(1)) == "x")
        #expect(queue.ended(2, at: 0, used: .seconds(2)) == "c", "it began at a hundred, not at nothing")
    }

    @Test("a debt outlasts a pause, and no project fills the room of those that come later")
    func debtsOutlastPauses() {
        var queue = TurnQueue<Int>(places: 1, maximumWaiting: 8)
        #expect(queue.arrived(1, of: 1) == .works(place: 0) && queue.ended(1, at: 0, used: .seconds(9)) == nil)
        #expect(queue.arrived(2, of: 2) == .works(place: 0))
        for item in 3...6 { #expect(queue.arrived(item, of: 1) == .waits) }
        #expect(queue.arrived(7, of: 1) == .refused, "half of the room")
        #expect(queue.arrived(8, of: 2) == .waits && queue.arrived(9, of: 2) == .waits)
        #expect(
            queue.ended(2, at: 0, used: .seconds(1)) == 8 && queue.ended(2, at: 0, used: .seconds(1)) == 9,
            "the other one owes nine seconds")
        #expect(queue.ended(2, at: 0, used: .seconds(1)) == 3)
    }

    @Test("a long turn lets others go first, and goes on where nobody waits; more than may wait are refused")
    func longTurnsGiveWay() {
        var queue = TurnQueue<Int>(places: 1, maximumWaiting: 2)
        #expect(queue.arrived(1, of: 1) == .works(place: 0))
        #expect(queue.gaveWay(1, 1, at: 0, used: .seconds(1)) == nil)
        #expect(queue.arrived(2, of: 1) == .waits)
        #expect(queue.gaveWay(1, 1, at: 0, used: .seconds(1)) == nil, "not before its own project's others")
        #expect(queue.arrived(3, of: 2) == .waits && queue.arrived(4, of: 3) == .refused)
        #expect(queue.gaveWay(1, 1, at: 0, used: .seconds(1)) == 3)
        #expect(queue.ended(2, at: 0, used: .seconds(9)) == 1, "it goes on before what has not begun")
        #expect(queue.ended(1, at: 0, used: .zero) == 2)
    }

    @Test("questions: one project leaves a place for the others, and who waits too long is refused without a trace (S6)")
    func onePlaceIsForOthers() async throws {
        var queue = TurnQueue<Int>(places: 3, placesOfOne: 2, maximumWaiting: 10)
        #expect(
            queue.arrived(1, of: 1) == .works(place: 0) && queue.arrived(2, of: 1) == .works(place: 1) && queue.arrived(3, of: 1) == .waits)
        #expect(queue.arrived(4, of: 2) == .works(place: 2) && queue.arrived(5, of: 2) == .waits && queue.arrived(6, of: 1) == .waits)
        #expect(queue.withdrew { $0 == 3 } == [3] && queue.withdrew { $0 == 3 }.isEmpty && queue.waitingCount == 2)
        #expect(queue.ended(2, at: 2, used: .seconds(1)) == 5, "the first one has two places already")
        #expect(queue.ended(1, at: 0, used: .seconds(9)) == 6 && queue.withdrew { $0 == 6 }.isEmpty)

        let turns = Turns.questions(patience: .milliseconds(1))
        let results = await withTaskGroup(of: RequestProblem.Code?.self) { group in
            let (begun, isOver) = (Locked(0), Locked(false))
            for _ in 1..<ServerLimits.heavyReads {
                group.addTask {
                    try? await turns.run(1) { (_) async throws(RequestProblem) in
                        begun.withLock { $0 += 1 }
                        while !isOver.withLock({ $0 }) { await Task.yield() }
                    }
                    return nil
                }
            }
            while begun.withLock({ $0 }) < ServerLimits.heavyReads - 1 { await Task.yield() }
            let code: @Sendable (Int32) async -> RequestProblem.Code? = { project in
                do throws(RequestProblem) {
                    try await turns.run(project) { (_) async throws(RequestProblem) in }
                } catch {
                    return error.code
                }
                return nil
            }
            let results = [await code(1), await code(2)]
            isOver.withLock { $0 = true }
            await group.waitForAll()
            return results + [await code(1)]
        }
        #expect(results == [.overloaded, nil, nil])
    }

    @Test("no more turns give way than may be in memory half done (I13)")
    func fewAreHalfDone() {
        var queue = TurnQueue<Int>(places: 1, maximumWaiting: 10, maximumBegun: 1)
        #expect(queue.arrived(1, of: 1) == .works(place: 0) && queue.arrived(2, of: 2) == .waits && queue.arrived(3, of: 3) == .waits)
        #expect(queue.gaveWay(1, 1, at: 0, used: .seconds(5)) == 2)
        #expect(queue.gaveWay(2, 2, at: 0, used: .seconds(1)) == nil, "one is half done already")
        #expect(queue.ended(2, at: 0, used: .zero) == 3 && queue.ended(3, at: 0, used: .seconds(9)) == 1)
        #expect(
            queue.arrived(4, of: 4) == .waits && queue.gaveWay(1, 1, at: 0, used: .seconds(9)) == 4, "it goes on, and may give way again")
    }

    /// 7 MB in 30 KB: objects in objects, each key escaped.
    private static let crafted: [UInt8] = {
        let nested = String(repeating: #"{"\u0061":"#, count: 29) + #"{"\u0061":1}"# + String(repeating: "}", count: 29)
        let members = (0..<80).map { #""k\#($0)":\#(nested)"# }.joined(separator: ",")
        let events = (0..<200).map {
            #"{"event_id":"\#(EventID.derived(name: "crafted", key: "\($0)"))","event":"e","time":1,"distinct_id":"u","properties":{\#(members)}}"#
        }
        return (try? Gzip.compress(Array("[\(events.joined(separator: ","))]".utf8), level: 9)) ?? []
    }()

    @Test("beside crafted bodies of another project a request is answered before all but those that were begun (I9)")
    func craftedBodiesSilenceNobody() async throws {
        #expect(Self.crafted.count < 64 * 1_024)
        try await RunningServer.run { server in
            let answered = Locked(0)
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 0..<20 {
                    group.addTask {
                        _ = try await server.post(Self.crafted, headers: ["Content-Encoding": "gzip"])
                        answered.withLock { $0 += 1 }
                    }
                }
                // Once the first one has been answered the others are there.
                while answered.withLock({ $0 }) == 0 { await Task.yield() }
                let before = answered.withLock { $0 }
                let body = EventBatch(envelope: .init(), events: [Sample.event(Sample.id(1))]).encoded()
                let other = ["Authorization": "Bearer \(RunningServer.otherKey)"]
                #expect(try await server.post(body, headers: other).receipt().received == 1)
                #expect(answered.withLock { $0 } - before <= 9, "of nineteen")
                try await group.waitForAll()
            }
        }
    }
}
