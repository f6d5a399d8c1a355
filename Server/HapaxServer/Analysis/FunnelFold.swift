/// How far one user has come through the steps of a funnel. A value that takes the user's rows one after the other, in their order.
///
/// An attempt begins at every row of the first step. Each further row takes all attempts, of which it is the next step and whose time is not
/// over, one step on. Of two attempts the one that began earlier is never behind the other, so the first to reach a depth is the earliest.
struct FunnelFold: Sendable {
    private struct Attempt {
        /// Unix milliseconds of its steps so far.
        var times: [Int64]
    }

    private let steps: Int
    /// Milliseconds from an attempt's first step to its last; the end is part of it.
    private let within: Int64
    /// By how many steps they have done, less one; those that began earlier first.
    private var attempts: [ArraySlice<Attempt>]
    /// When each step was reached by the earliest attempt that came as far as any; empty before the first step.
    private(set) var best: [Int64] = []
    /// The latest first step.
    private(set) var latest: Int64?

    init(steps: Int, within: Int64) {
        (self.steps, self.within) = (steps, within)
        attempts = Array(repeating: [], count: steps - 1)
    }

    var depth: Int { best.count }

    /// - Parameters:
    ///   - time: Unix milliseconds, not before that of the row before.
    ///   - matches: Bit n: the row is step n, from 0.
    ///   - begins: Whether an attempt may begin with it.
    mutating func add(time: Int64, matches: UInt8, begins: Bool) {
        // From the last step on, so that one row takes an attempt one step on.
        for step in stride(from: steps - 1, through: 1, by: -1) where matches & (1 << step) != 0 {
            let due = attempts[step - 1].drop { time - $0.times[0] > within }
            attempts[step - 1] = []
            if let first = due.first, best.count <= step { best = first.times + [time] }
            guard step < steps - 1 else { continue }
            attempts[step] += due.map { Attempt(times: $0.times + [time]) }
        }
        guard matches & 1 != 0, begins else { return }
        latest = time
        if best.isEmpty { best = [time] }
        if steps > 1 { attempts[0].append(Attempt(times: [time])) }
    }
}
