import Testing

@testable import HapaxServer

@Suite("When a lost database is asked again, by a clock that is moved (I15, I16)", .endsWhenItHangs)
struct ConnectionBreakerTests {
    private static let start = ContinuousClock.now

    @Test(
        "While it is down at most ten attempts a second, however many ask; back within a second; healthy, nobody waits",
        arguments: [0, 0.5, 1])
    func attemptsAreBounded(jitter: Double) {
        var breaker = ConnectionBreaker()
        for _ in 0..<16 { #expect(breaker.mayConnect(Self.start) == true) }
        breaker.failed(Self.start, jitter: jitter)
        var attempts: [Int] = []
        for millisecond in 1...10_000 {
            let now = Self.start + .milliseconds(millisecond)
            for _ in 0..<5 where breaker.mayConnect(now) {
                attempts.append(millisecond)
                if attempts.count % 2 == 0 { breaker.failed(now, jitter: jitter) }
            }
        }
        for (first, tenth) in zip(attempts, attempts.dropFirst(10)) { #expect(tenth - first >= 1_000) }
        for (one, next) in zip(attempts, attempts.dropFirst()) { #expect(next - one <= 1_000) }
        breaker.connected()
        for _ in 0..<16 { #expect(breaker.mayConnect(Self.start) == true) }
    }
}
