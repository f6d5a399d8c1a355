import TestSupport
import Testing

@testable import HapaxClient

/// The machine against a model of a server and its queue, over many seeded lives.
@Suite("DeliveryStateMachine in simulation (D12, D13, I16)", .timeLimit(.minutes(20)))
struct DeliverySimulationTests {
    /// What the machine works on, and the auditor of what it does.
    private struct Model {
        var machine = DeliveryStateMachine(batchSize: 8)
        var queue: [Int]
        let poison: Set<Int>
        /// Requests so far; every event remembers when it was last refused alone.
        var requests = 0
        var refusedAlone: [Int: Int] = [:]
        var lastAcceptance = 0
        var condemned: [Int] = []
        var violations: [String] = []
        private var batch: ArraySlice<Int> = []
        private var suspects: [Int] = []
        private var skipped = 0
        private var witness: Int?
        /// The planted bug: any earlier acceptance counts as evidence for ever.
        var believesWithoutAsking = false

        init(count: Int, poison: Set<Int>) {
            queue = Array(0..<count)
            self.poison = poison
        }

        enum Mood { case healthy, refusesEverything, asksToRetry, down }

        /// One pass, from a wish to its rest; the server's mood may change with each request.
        mutating func pass(_ mood: (_ request: Int) -> Mood) -> DeliveryStateMachine.Rest {
            var action = machine.uploadWanted(manual: true)
            while true {
                switch action {
                case .read(let limit, let skipping):
                    skipped = skipping
                    batch = queue.dropFirst(skipping).prefix(limit)
                    action = machine.batchRead(count: batch.count)
                case .send:
                    let events = Array(batch)
                    let answer = answer(events, mood)
                    if answer == .batchRefused, let event = events.first, events.count == 1 {
                        refusedAlone[event] = requests
                        if skipped == suspects.count { suspects.append(event) }
                    }
                    action = machine.answered(answer)
                case .settle:
                    if kept == 0 {
                        queue.removeAll { batch.contains($0) }
                        witness = batch.last
                    }
                    action = machine.settled(kept: kept)
                case .condemn:
                    for event in suspects {
                        condemned.append(event)
                        guard let refused = refusedAlone[event], lastAcceptance > refused else {
                            violations.append("\(event) was condemned without an acceptance since")
                            continue
                        }
                    }
                    queue.removeAll { suspects.contains($0) }
                    suspects = []
                    action = machine.condemned()
                case .testify:
                    guard let witness else { return .stopped }
                    action = machine.answered(believesWithoutAsking ? .accepted : answer([witness], mood))
                case .rest(let rest):
                    suspects = []
                    return rest
                case .none:
                    violations.append("the machine does not know what to do")
                    return .stopped
                }
            }
        }

        private var kept = 0

        private mutating func answer(_ events: [Int], _ mood: (Int) -> Mood) -> DeliveryStateMachine.Answer {
            requests += 1
            kept = 0
            switch mood(requests) {
            case .down: return .tryLater(retryAfter: nil)
            case .refusesEverything: return .batchRefused
            case .asksToRetry:
                if events.contains(where: poison.contains) { return .batchRefused }
                kept = events.count
                return events == [witness] ? .tryLater(retryAfter: nil) : .accepted
            case .healthy:
                if events.contains(where: poison.contains) { return .batchRefused }
                lastAcceptance = requests
                return .accepted
            }
        }
    }

    @Test("only what was refused alone, with an acceptance since, is condemned; a healthy server drains the rest", arguments: 0..<400)
    func randomLives(seed: Int) {
        var random = SeededRandom(seed: UInt64(seed))
        let count = Int.random(in: 1...80, using: &random)
        let shares: [Double] = [0, 0.05, 0.5, 0.95]
        let share = shares[Int.random(in: 0..<4, using: &random)]
        let poison = Set((0..<count).filter { _ in Double.random(in: 0..<1, using: &random) < share })
        var model = Model(count: count, poison: poison)
        for _ in 0..<Int.random(in: 0...6, using: &random) {
            let moods: [Model.Mood] = [.healthy, .refusesEverything, .asksToRetry, .down]
            let first = moods[Int.random(in: 0..<4, using: &random)]
            let second = moods[Int.random(in: 0..<4, using: &random)]
            let change = model.requests + Int.random(in: 0...30, using: &random)
            let before = model.requests
            _ = model.pass { $0 <= change ? first : second }
            #expect(model.requests - before < 300, "no storm, seed \(seed)")
        }
        // What a server that refuses everything is offered, it refuses at no cost.
        let condemned = model.condemned
        for _ in 0..<3 {
            let before = model.requests
            _ = model.pass { _ in .refusesEverything }
            #expect(model.requests - before <= 2 * DeliveryStateMachine.maximumSuspects, "seed \(seed)")
        }
        #expect(model.condemned == condemned, "seed \(seed)")
        var passes = 0
        while !model.queue.isEmpty, passes < 12 {
            _ = model.pass { _ in .healthy }
            passes += 1
        }
        #expect(model.violations == [], "seed \(seed)")
        // Where nothing was ever accepted nobody can tell a culprit from a server that refuses everything.
        if poison.count < count || model.lastAcceptance > 0 {
            #expect(model.queue.isEmpty, "seed \(seed): \(model.queue.count) left of \(count), \(poison.count) poison")
        } else {
            #expect(model.condemned.isEmpty)
        }
    }

    @Test("more poison at the head than a pass may try is passed in a bounded number of probes", arguments: [17, 40, 100])
    func longRowOfPoison(count: Int) {
        var model = Model(count: count + 20, poison: Set(0..<count))
        var passes = 0
        while !model.queue.isEmpty, passes < 100 {
            _ = model.pass { _ in .healthy }
            passes += 1
        }
        #expect(model.queue.isEmpty)
        #expect(passes <= count / 15 + 2)
        #expect(model.condemned == Array(0..<count))
        #expect(model.violations == [])
    }

    @Test("control: the model sees a condemnation on an acceptance that is older than the refusal")
    func staleEvidenceIsSeen() {
        var honest = Model(count: 40, poison: [])
        _ = honest.pass { $0 == 1 ? .healthy : .refusesEverything }
        #expect(honest.violations == [] && honest.condemned == [])
        var planted = Model(count: 40, poison: [])
        planted.believesWithoutAsking = true
        _ = planted.pass { $0 == 1 || $0 > 60 ? .healthy : .refusesEverything }
        #expect(!planted.violations.isEmpty)
    }
}
