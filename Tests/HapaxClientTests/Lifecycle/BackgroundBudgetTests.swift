import Testing

@testable import HapaxClient

@Suite("BackgroundBudget (R33, R34)", .endsWhenItHangs)
struct BackgroundBudgetTests {
    @Test(
        "min(10 s, remaining − 2 s), at least 3 s, and only if that much is left",
        arguments: [
            (2_999, nil), (3_000, 3_000), (4_000, 3_000), (5_000, 3_000), (5_500, 3_500), (11_999, 9_999), (12_000, 10_000),
            (30_000, 10_000), (180_000, 10_000),
        ]
            as [(Int, Int?)])
    func timeoutFits(remaining: Int, timeout: Int?) {
        #expect(BackgroundBudget.timeout(remaining: .milliseconds(remaining)) == timeout.map { .milliseconds($0) })
    }
}
