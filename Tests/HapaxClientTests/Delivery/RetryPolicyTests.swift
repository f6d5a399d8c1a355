import Testing

@testable import HapaxClient

/// Always the same draw: 0 gives the shortest wait, all ones very nearly the longest.
struct FixedRandomness: RandomNumberGenerator, Sendable {
    var value: UInt64
    mutating func next() -> UInt64 { value }

    static let lowest = FixedRandomness(value: 0)
    /// `Double.random` takes the top 53 bits; one less than all of them, since all of them round up and are drawn again.
    static let highest = FixedRandomness(value: .max)
}

@Suite("RetryPolicy (I16, D11)", .endsWhenItHangs)
struct RetryPolicyTests {
    private let policy = RetryPolicy.delivery

    private func longest(_ failures: Int, retryAfter: Duration? = nil) -> Duration {
        var randomness = FixedRandomness.highest
        return policy.delay(failures: failures, retryAfter: retryAfter, using: &randomness)
    }

    private func shortest(_ failures: Int, retryAfter: Duration? = nil) -> Duration {
        var randomness = FixedRandomness.lowest
        return policy.delay(failures: failures, retryAfter: retryAfter, using: &randomness)
    }

    @Test(
        "the longest wait doubles with each failure and ends at the cap",
        arguments: [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (1_000, 300)])
    func ceilingDoublesUpToTheCap(failures: Int, seconds: Int) {
        let longest = longest(failures)
        #expect(longest <= .seconds(seconds))
        #expect(longest > .seconds(seconds) * 0.99)
    }

    @Test("full jitter: the shortest wait does not grow, and is never nothing", arguments: [1, 5, 50])
    func shortestWaitIsTheFloor(failures: Int) {
        #expect(shortest(failures) == .milliseconds(100))
    }

    @Test("Retry-After raises the wait, at most to the cap; nonsense does not lower it")
    func retryAfterIsAMinimum() {
        #expect(shortest(1, retryAfter: .seconds(30)) >= .seconds(30))
        #expect(longest(1, retryAfter: .seconds(30)) <= .seconds(31))
        #expect(longest(1, retryAfter: .seconds(30)) > .seconds(30.9), "who was told the same does not come back together")
        #expect(shortest(1, retryAfter: .zero) == shortest(1))
        #expect(longest(10, retryAfter: .seconds(1)) > .seconds(299))
    }

    @Test("however long the server asks for, the clients that it told so come back spread over a minute, and none after the cap (I16)")
    func longWishesAreSpread() {
        for (failures, wish) in [(1, 300), (12, 300), (1, 86_400), (3, 290)] {
            #expect(shortest(failures, retryAfter: .seconds(wish)) >= .seconds(240))
            #expect(longest(failures, retryAfter: .seconds(wish)) <= .seconds(300))
            #expect(longest(failures, retryAfter: .seconds(wish)) - shortest(failures, retryAfter: .seconds(wish)) > .seconds(59))
        }
    }
}

@Suite("RetryAfter (RFC 9110 §10.2.3)", .endsWhenItHangs)
struct RetryAfterTests {
    /// Sun, 06 Nov 1994 08:49:37 GMT, RFC 9110's own example.
    private let example: Int64 = 784_111_777_000

    @Test(arguments: [("0", 0), ("7", 7), (" 120 ", 120), ("99999999999999999999", 999_999_999)])
    func secondsAreRead(text: String, seconds: Int64) {
        #expect(RetryAfter.duration(text, now: 0) == .seconds(seconds))
    }

    @Test func dateIsReadAgainstTheClock() {
        let text = "Sun, 06 Nov 1994 08:49:37 GMT"
        #expect(RetryAfter.duration(text, now: example - 5_000) == .seconds(5))
        #expect(RetryAfter.duration(text, now: example + 5_000) == .zero)
    }

    @Test func leapDayIsCounted() {
        #expect(RetryAfter.duration("Thu, 29 Feb 2024 00:00:00 GMT", now: 1_709_164_799_000) == .seconds(1))
        #expect(RetryAfter.duration("Fri, 01 Mar 2024 00:00:00 GMT", now: 1_709_164_800_000) == .seconds(86_400))
    }

    @Test(arguments: [
        "", "-1", "1.5", "soon", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 25:49:37 GMT",
    ])
    func restIsIgnored(text: String) {
        #expect(RetryAfter.duration(text, now: 0) == nil)
    }
}
