import TestSupport
import Testing

@testable import HapaxModel

/// RFC 9562 §5.7 and §6.2; I7: nothing orders by the wall clock.
@Suite(.endsWhenItHangs)
struct UUIDv7GeneratorTests {
    /// Gives prescribed words, the last one for ever.
    private struct Words: RandomNumberGenerator, Sendable {
        var words: [UInt64]
        mutating func next() -> UInt64 { words.count > 1 ? words.removeFirst() : words[0] }
    }
    private let now: Int64 = 1_763_680_000_123

    @Test func layoutIsThatOfTheRFC() {
        var generator = UUIDv7Generator(randomness: Words(words: [0, .max, 0xDEAD_BEEF_1234_5678]))
        let id = generator.next(unixMilliseconds: now)
        #expect(id.version == 7)
        #expect(id.hasStandardVariant)
        #expect(id.unixMilliseconds == now)
        // 41 ones of the counter, its top bit clear, then the lower half of the random word.
        #expect(id.description == "019aa385-187b-77ff-bfff-ffff12345678")
    }

    @Test func idsIncreaseWithinAMillisecond() {
        var generator = UUIDv7Generator(randomness: SeededRandom(seed: 1))
        let ids = (0..<10_000).map { _ in generator.next(unixMilliseconds: now) }
        #expect(zip(ids, ids.dropFirst()).allSatisfy { $0 < $1 })
        #expect(ids.allSatisfy { $0.unixMilliseconds == now })
    }

    @Test func idsIncreaseWhateverTheClockDoes() {
        var random = SeededRandom(seed: 2)
        var generator = UUIDv7Generator(randomness: SeededRandom(seed: 3))
        var clock = now
        var last = generator.next(unixMilliseconds: clock)
        for _ in 0..<50_000 {
            clock += Int64.random(in: -50...50, using: &random)
            if Int.random(in: 0..<1_000, using: &random) == 0 { clock -= 86_400_000 }
            let id = generator.next(unixMilliseconds: clock)
            #expect(last < id)
            last = id
        }
    }

    @Test func aClockThatRunsBackwardsKeepsTheLastMillisecond() {
        var generator = UUIDv7Generator(randomness: SeededRandom(seed: 4))
        let first = generator.next(unixMilliseconds: now)
        let second = generator.next(unixMilliseconds: now - 3_600_000)
        #expect(second > first)
        #expect(second.unixMilliseconds == now)
        #expect(generator.next(unixMilliseconds: now + 1).unixMilliseconds == now + 1)
    }

    @Test func aUsedUpCounterAdvancesTheMillisecond() {
        var generator = UUIDv7Generator(randomness: Words(words: [0]))
        generator.lastMilliseconds = UInt64(now)
        generator.counter = (1 << 42) - 2
        let last = generator.next(unixMilliseconds: now)
        #expect(last.unixMilliseconds == now)
        let next = generator.next(unixMilliseconds: now)
        #expect(next.unixMilliseconds == now + 1)
        #expect(next > last)
        #expect(generator.next(unixMilliseconds: now).unixMilliseconds == now + 1)
    }

    @Test func clocksBeyondTheFieldCountAsItsEnds() {
        var generator = UUIDv7Generator(randomness: SeededRandom(seed: 5))
        #expect(generator.next(unixMilliseconds: .min).unixMilliseconds == 0)
        #expect(generator.next(unixMilliseconds: -1).unixMilliseconds == 0)
        #expect(generator.next(unixMilliseconds: .max).unixMilliseconds == (1 << 48) - 1)
    }

    @Test("devices whose clock was never set do not share ids: the counter is random there, too")
    func aClockAtZeroStillSeedsTheCounter() {
        let ids = (0..<8).map { seed in
            var generator = UUIDv7Generator(randomness: SeededRandom(seed: UInt64(seed)))
            return generator.next(unixMilliseconds: 0)
        }
        let counters = Set(ids.map { ($0.high & 0xFFF) << 30 | ($0.low >> 32) & 0x3FFF_FFFF })
        #expect(counters.count == ids.count)
    }

    @Test func generatorsOfTheSystemDoNotMeet() {
        let ids = (0..<64).flatMap { _ in
            var generator = UUIDv7Generator()
            return (0..<64).map { _ in generator.next(unixMilliseconds: now) }
        }
        #expect(Set(ids).count == ids.count)
    }

    @Test func bufferedRandomnessDoesNotRepeatItself() {
        var randomness = BufferedRandomness()
        let words = (0..<1_000).map { _ in randomness.next() }
        #expect(Set(words).count == words.count)
        #expect(words.reduce(0, |) == .max)
        #expect(words.reduce(.max, &) == 0)
    }

    @Test("control: a generator that follows the clock back is caught")
    func orderCheckCanFail() {
        var naive: [EventID] = []
        for clock in [now, now - 1] {
            var generator = UUIDv7Generator(randomness: SeededRandom(seed: 6))
            naive.append(generator.next(unixMilliseconds: clock))
        }
        #expect(!(naive[0] < naive[1]))
    }
}
