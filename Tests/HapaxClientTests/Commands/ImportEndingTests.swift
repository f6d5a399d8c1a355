import HapaxClient
import Testing

@testable import hapax

@Suite("What ends an import", .timeLimit(.minutes(20)))
struct ImportEndingTests {
    @Test("an import that has delivered all is not given up, however long the look at its file takes; a signal still ends it")
    func drainedImportIsNotGivenUp() {
        var ending = ImportEnding()
        let isDrained = ending.drained()
        let isGivenUp = ending.stop(.impatience(nil))
        #expect(isDrained && !isGivenUp && ending.reason == nil)
        let isInterrupted = ending.stop(.signal(2))
        #expect(isInterrupted)
    }

    @Test("a reader that was stopped looks like the end of the file, and is none; the first reason stays")
    func stoppedImportIsNotDrained() {
        var ending = ImportEnding()
        let (isFirst, isDrained, isSecond) = (ending.stop(.impatience(.shutDown)), ending.drained(), ending.stop(.damage("later")))
        #expect(isFirst && !isDrained && !isSecond)
        guard case .impatience(.shutDown) = ending.reason else {
            Issue.record("\(String(describing: ending.reason))")
            return
        }
    }
}
