import Testing

// Ten minutes: the limit runs while a test waits for the thread that all of these suites share.
@Suite("Long tests take turns on one thread", .takesTurns, .endsWhenItHangs(after: .seconds(600)))
struct TakesTurnsTests {
    @Test(arguments: 0..<3)
    func runsOnTheThread(number: Int) {
        #expect(TakesTurns.isMyTurn)
    }

    @Test func comesBackToTheThread() async {
        await Task.yield()
        #expect(TakesTurns.isMyTurn)
        await withTaskGroup { group in
            group.addTask { #expect(TakesTurns.isMyTurn) }
        }
    }
}

@Suite(.endsWhenItHangs)
struct TakesNoTurnsTests {
    @Test("control: without the trait a test is elsewhere")
    func runsElsewhere() async {
        #expect(!TakesTurns.isMyTurn)
    }
}
