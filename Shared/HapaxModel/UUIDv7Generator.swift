/// Makes version 7 ids (RFC 9562 §5.7) that strictly increase, whatever the clock does.
///
/// The 48 bits of Unix milliseconds are followed by a counter of 42 bits and by 32 random bits. The counter starts each millisecond at a
/// random value with its top bit clear and is incremented within it (RFC 9562 §6.2, methods 1 and 2). When the clock stands still or runs
/// backwards the last millisecond is kept; when the counter is used up the millisecond is advanced.
///
/// A value: the clock and the randomness come from the caller.
package struct UUIDv7Generator<Randomness: RandomNumberGenerator & Sendable>: Sendable {
    // Internal, so that a test can set the counter just before its end.
    var lastMilliseconds: UInt64 = 0
    var counter: UInt64 = 0
    private var randomness: Randomness

    private static var counterBits: UInt64 { 42 }
    private static var maximumMilliseconds: UInt64 { (1 << 48) - 1 }

    /// Randomness makes ids unguessable and, between generators, unique; order within one generator does not depend on it.
    package init(randomness: Randomness) {
        self.randomness = randomness
        // A clock that was never set shows 0, for which `next` does not seed: ids must differ then, too.
        seed()
    }

    /// - Parameter unixMilliseconds: The wall clock; a value outside 0…2⁴⁸−1 counts as the nearer end.
    package mutating func next(unixMilliseconds: Int64) -> EventID {
        let now = min(UInt64(max(unixMilliseconds, 0)), Self.maximumMilliseconds)
        if now > lastMilliseconds {
            lastMilliseconds = now
            seed()
        } else {
            counter += 1
            if counter >> Self.counterBits != 0 {
                // The largest millisecond wraps only after 2⁴¹ ids made in the year 10889.
                lastMilliseconds = lastMilliseconds == Self.maximumMilliseconds ? 0 : lastMilliseconds + 1
                seed()
            }
        }
        let tail = UInt64(truncatingIfNeeded: randomness.next()) & 0xFFFF_FFFF
        return EventID(
            versionedHigh: lastMilliseconds << 16 | 0x7000 | counter >> 30,
            low: 0b10 << 62 | (counter & 0x3FFF_FFFF) << 32 | tail
        )
    }

    private mutating func seed() {
        counter = randomness.next() >> (64 - Self.counterBits + 1)
    }
}

extension UUIDv7Generator where Randomness == BufferedRandomness {
    /// A generator on the operating system's random bytes.
    package init() {
        self.init(randomness: BufferedRandomness())
    }
}
