import Foundation

/// Random numbers that a printed seed brings back (SplitMix64, Steele, Lea and Flood 2014).
package struct SeededRandom: RandomNumberGenerator, Sendable {
    package let seed: UInt64
    private var state: UInt64

    package init(seed: UInt64) {
        self.seed = seed
        state = seed
    }

    /// Begins with a seed of this run's own, which it prints: `HAPAX_SEED` gives one back.
    package static func printed(_ test: String = #function) -> SeededRandom {
        let given = ProcessInfo.processInfo.environment["HAPAX_SEED"].flatMap { UInt64($0) }
        let seed = given ?? .random(in: 0...999_999)
        print("seed of \(test): \(seed) (HAPAX_SEED)")
        return SeededRandom(seed: seed)
    }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
