import Foundation
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

    @Test("one whose directory somebody has deleted is gone with its file, and what it held is free (I13)")
    func lostFileHoldsNothing() async throws {
        var test: TestClient? = try TestClient()
        let clock = try #require(test?.clock)
        weak let queue = test?.client.queue
        try FileManager.default.removeItem(atPath: try #require(test).directory.path("queue"))
        test?.client.track("lost")
        await clock.scheduled(1)
        test = nil
        while queue != nil { await Task.yield() }
    }

    @Test("what it refused is counted on disk, at once")
    func refusalsAreCounted() async throws {
        var test: TestClient? = try TestClient()
        let (directory, queue) = try #require(test.map { ($0.directory, $0.client.queue) })
        try test?.client.optOut()
        for _ in 0..<3 { test?.client.track("refused") }
        test = nil
        while queue.books.drops.byReason.isEmpty { await Task.yield() }
        #expect(queue.books.drops.byReason == [DropReason.optedOut.rawValue: 3])
        withExtendedLifetime(directory) {}
    }
}
