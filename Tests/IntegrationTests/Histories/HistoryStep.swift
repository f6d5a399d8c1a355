import HapaxClient
import TestSupport

/// One thing that happens in a history.
enum HistoryStep: Sendable {
    /// Worker processes track durably while they upload.
    case work(Work)
    /// `hapax track`, several at once.
    case track(Tracks)
    /// `hapax import` of a small file; the same file again if `isAgain` and there is one that was not finished.
    case importFile(lines: Int, bad: Int, killAfter: Int?, isAgain: Bool)
    case flush(killAfter: Int?)
    case purge(withLetters: Bool, isKilled: Bool)
    case retryLetters(isKilled: Bool)
    case optOut
    case optIn
    /// While nobody runs.
    case damage(QueueDamageKind)
    case fillDisk(rest: Int)
    case freeDisk
    case stopServer
    case startServer

    struct Work: Sendable {
        enum End: Sendable { case kill, terminate }

        var level = Durability.process
        var threads = 2
        var bulk = 10
        var fill = 0
        /// Durable returns to wait for.
        var lines = 20
        var end = End.kill
        /// Killed as soon as it has started, or before.
        var isKilledAtStart = false
        /// A second worker, which finds the queue taken: how many of its returns to wait for, and how it ends.
        var companion: (lines: Int, end: End, endsFirst: Bool)?
        /// `hapax track` while it works.
        var tracksBeside = 0
        var serverIsRestarted = false
        /// Done to the file while it works.
        var damage: QueueDamageKind?
    }

    struct Tracks: Sendable {
        var count = 1
        var ownIDs = false
        /// Each is killed and run again until it has ended by itself.
        var isKilled = false
        var isBad = false
        /// Under an id that another event has already.
        var isConflict = false
        var delivers = true
    }
}

/// What the network does during a step.
enum Weather: Sendable, CaseIterable {
    case calm, rough, down
}

/// What a history has in it, drawn before its steps.
struct HistoryPlan: Sendable, CustomStringConvertible {
    let seed: UInt64
    var kind = PipelineStore.Kind.sqlite
    var isOnTinyDisk = false
    var hasDamage = false
    var hasPurges = false
    var steps: [(step: HistoryStep, weather: Weather)] = []

    /// Which of the possible complications a history may have.
    struct Limits: Sendable {
        var damage = true
        var purges = true
        var tinyDisk = TinyDisk.isPossible
        var postgres = true
    }

    init(seed: UInt64, limits: Limits = Limits()) {
        self.seed = seed
        var random = SeededRandom(seed: seed)
        func chance(_ percent: Int) -> Bool { Int.random(in: 0..<100, using: &random) < percent }
        // Each is drawn whatever the limits, so that these change nothing else of the history.
        let (postgres, tiny, damage, purges) = (chance(15), chance(30), chance(55), chance(35))
        if postgres && limits.postgres { kind = .postgres }
        isOnTinyDisk = tiny && limits.tinyDisk
        hasDamage = damage && limits.damage
        hasPurges = purges && limits.purges
        for _ in 0..<Int.random(in: 10...24, using: &random) {
            let weather: Weather = chance(50) ? .calm : chance(60) ? .rough : .down
            steps.append((draw(&random), weather))
        }
    }

    private func draw(_ random: inout SeededRandom) -> HistoryStep {
        func number(_ range: ClosedRange<Int>) -> Int { .random(in: range, using: &random) }
        func chance(_ percent: Int) -> Bool { number(0...99) < percent }
        while true {
            switch number(0...99) {
            case 0..<30: return .work(.random(damaging: hasDamage, using: &random))
            case 30..<44:
                return .track(
                    HistoryStep.Tracks(
                        count: number(1...4), ownIDs: chance(50), isKilled: chance(35), isBad: chance(12), isConflict: chance(10),
                        delivers: chance(70)))
            case 44..<50:
                return .importFile(
                    lines: number(1...40), bad: number(0...2), killAfter: chance(40) ? number(0...2) : nil, isAgain: chance(50))
            case 50..<60: return .flush(killAfter: chance(40) ? number(0...3) : nil)
            case 60..<65 where hasPurges: return .purge(withLetters: chance(40), isKilled: chance(25))
            case 65..<69: return .retryLetters(isKilled: chance(25))
            // Seldom and not for long: nothing happens meanwhile.
            case 69..<71: return .optOut
            case 71..<77: return .optIn
            case 77..<87 where hasDamage: return .damage(.random(using: &random))
            case 87..<91 where isOnTinyDisk: return .fillDisk(rest: chance(50) ? 0 : number(0...100_000))
            case 91..<94 where isOnTinyDisk: return .freeDisk
            case 94..<96: return .stopServer
            case 96..<100: return .startServer
            default: continue
            }
        }
    }

    var description: String {
        let traits = [
            "\(kind)", isOnTinyDisk ? "tiny disk" : nil, hasDamage ? "damage" : nil, hasPurges ? "purges" : nil,
        ].compactMap { $0 }
        return "history \(seed): \(traits.joined(separator: ", "))"
    }
}

extension HistoryStep.Work {
    static func random(damaging: Bool, using random: inout SeededRandom) -> Self {
        func number(_ range: ClosedRange<Int>) -> Int { .random(in: range, using: &random) }
        func chance(_ percent: Int) -> Bool { number(0...99) < percent }
        func end() -> End { chance(60) ? .kill : .terminate }
        var work = Self()
        work.level = chance(25) ? .power : .process
        work.threads = number(1...4)
        work.bulk = [1, 10, 50, 1_000][number(0...3)]
        work.fill = [0, 100, 2_000][number(0...2)]
        work.lines = chance(15) ? number(150...500) : number(1...60)
        work.end = end()
        work.isKilledAtStart = chance(15)
        if chance(25) { work.companion = (number(1...30), end(), chance(50)) }
        if chance(25) { work.tracksBeside = number(1...3) }
        work.serverIsRestarted = chance(15)
        let seed = random.next()
        if chance(15), damaging {
            work.damage =
                chance(70)
                ? .flip(.main, count: number(1...8), inPageHeaders: chance(70), seed: seed) : .noise(.main, seed: seed)
        }
        return work
    }
}
