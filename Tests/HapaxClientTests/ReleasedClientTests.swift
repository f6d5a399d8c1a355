import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A client that its owner lets go without a shutdown (I1, I12)", .timeLimit(.minutes(10)), .endsWhenItHangs)
struct ReleasedClientTests {
    @Test("what could not be stored is stored once the disk allows it, though nobody holds the client")
    func eventsAreStored() async throws {
        var test: TestClient? = try TestClient()
        let (directory, clock, queue) = try #require(test.map { ($0.directory, $0.clock, $0.client.queue) })
        try test?.refuseCommits(true)
        test?.client.track("kept")
        await clock.scheduled(1)
        weak let client = test?.client
        test = nil
        #expect(client == nil)
        try await queue.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA query_only = 0") }
        clock.advance(by: .seconds(5))
        while queue.books.depth == 0 { await Task.yield() }
        #expect(queue.books.depth == 1 && clock.pending.isEmpty, "and nothing keeps the queue open then")
        withExtendedLifetime(directory) {}
    }

    @Test("what it refused is counted on disk")
    func refusalsAreCounted() async throws {
        var test: TestClient? = try TestClient()
        let (directory, clock, queue) = try #require(test.map { ($0.directory, $0.clock, $0.client.queue) })
        try test?.client.optOut()
        for _ in 0..<3 { test?.client.track("refused") }
        test = nil
        clock.advance(by: .seconds(1))
        while queue.books.drops.byReason.isEmpty { await Task.yield() }
        #expect(queue.books.drops.byReason == [DropReason.optedOut.rawValue: 3])
        withExtendedLifetime(directory) {}
    }
}
