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

    /// One to three small changes at random places.
    package mutating func mutated(_ bytes: [UInt8]) -> [UInt8] {
        let tokens = ["\"", "{", "}", "[", "]", ",", ":", "\\", "0", "-", "e", ".", " ", "\\u", "null", "\"event\":\"x\",", "\u{0}", "é"]
            .map { Array($0.utf8) }
        var bytes = bytes
        for _ in 0..<Int.random(in: 1...3, using: &self) where !bytes.isEmpty {
            let place = Int.random(in: 0..<bytes.count, using: &self)
            switch Int.random(in: 0..<5, using: &self) {
            case 0: bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &self)
            case 1: bytes[place] = UInt8.random(in: 0...255, using: &self)
            case 2: bytes.remove(at: place)
            case 3: bytes.insert(contentsOf: tokens[Int.random(in: 0..<tokens.count, using: &self)], at: place)
            default:
                let end = min(place + Int.random(in: 1...12, using: &self), bytes.count)
                bytes.insert(contentsOf: bytes[place..<end], at: Int.random(in: 0...bytes.count, using: &self))
            }
        }
        return bytes
    }
}
