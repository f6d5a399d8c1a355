import TestSupport
import Testing

@testable import hapax

@Suite("What a command asks a disk that may hang", .endsWhenItHangs)
struct TimeLimitTests {
    @Test("is answered, or left behind at the limit; an answer that comes later is nobody's")
    func limitEndsTheWait() async {
        #expect(await TimeLimit.result(after: .seconds(600)) { 1 } == 1)
        let hangs = Gate()
        #expect(
            await TimeLimit.result(after: .milliseconds(1)) {
                hangs.blockUntilOpen()
                return 2
            } == nil)
        hangs.open()
    }
}
