import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("An app of a project that takes derived ids from server keys alone", .endsWhenItHangs)
struct GuardedAppTests {
    private let directory = TemporaryDirectory("app")

    /// A process of the app; each version says another thing of itself.
    private func launch(
        _ server: ServerUnderTest, in queue: String, version: Int, onStored: (@Sendable ([UInt8]) -> Void)? = nil
    ) throws -> EventClient {
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:\(server.port)", writeKey: ServerUnderTest.key, queueDirectory: directory.path(queue))
        (configuration.isApp, configuration.uploads.interval, configuration.onStored) = (true, nil, onStored)
        configuration.automatic.appVersion = "\(version)"
        return try EventClient.start(configuration)
    }

    /// What a killed process leaves: the directory as it is at this moment.
    private func kill(_ queue: String, leaving copy: String) throws {
        try FileManager.default.copyItem(atPath: directory.path(queue), toPath: directory.path(copy))
    }

    private func refuseCommits(of client: EventClient, _ refuses: Bool) throws {
        try client.open?.file.database.writeWithoutTransaction { try $0.execute(sql: "PRAGMA query_only = \(refuses ? 1 : 0)") }
    }

    @Test("C5: its whole life, in several processes and runs, with crashes and damage, makes one row of each event and no dead letter")
    func lifeUnderTheGuard() async throws {
        let store = try await PipelineStore(.sqlite)
        let server = try await ServerUnderTest.start(store)
        let patch = RawHTTP.request(
            "PATCH", "/v1/admin/projects/demo", headers: ["Authorization": "Bearer \(ServerUnderTest.adminKey)"],
            body: Array(#"{"derived_ids":"server"}"#.utf8))
        let admin = try await RawHTTP(port: server.port)
        try await admin.send(patch)
        #expect(try await admin.answer(to: "PATCH").status == 200)
        var clients: [EventClient] = []

        // Killed when `$identify` is stored, and before anybody has noted it.
        let first = try launch(server, in: "1", version: 1) { [directory] event in
            guard String(decoding: event, as: UTF8.self).contains("$identify") else { return }
            try? FileManager.default.copyItem(atPath: directory.path("1"), toPath: directory.path("2"))
        }
        first.handle(.didBecomeActive)
        first.trackScreen("cart")
        try await first.open?.waitUntilStored()
        first.identify("anna")
        try await first.open?.waitUntilStored()

        // Another version ends that session and logs the same user in, and so does a process beside it.
        let second = try launch(server, in: "2", version: 2)
        for _ in 0..<2 { second.identify("anna") }
        second.handle(.didBecomeActive)
        let beside = try launch(server, in: "2", version: 3)
        beside.identify("anna")
        beside.track("widget")
        try await second.open?.waitUntilStored()
        clients += [second, beside]
        for client in clients { #expect(await client.flush().remaining == 0) }
        // Killed between the two files: `$identify` of the next user is in identity.json, and in no queue.
        try refuseCommits(of: second, true)
        second.identify("bea")
        await #expect(throws: TrackError.self) { try await second.open?.waitUntilStored() }
        try kill("2", leaving: "3")
        try refuseCommits(of: second, false)

        // The next run stores that very event, and the one that was taken for dead as well.
        let third = try launch(server, in: "3", version: 4)
        third.identify("bea")
        third.handle(.didBecomeActive)
        third.reset()
        third.handle(.didEnterBackground)
        // With some time, so that its file is let go of.
        await third.shutdown(within: .seconds(60))
        // In the background it had no time for a request: the run after it sends what is left.
        let next = try launch(server, in: "3", version: 4)
        for client in [next, second] {
            let report = await client.flush()
            #expect(report.remaining == 0, "\(report)")
        }
        let path = try #require(next.open.map { $0.directory.databasePath($0.file.number) })
        await next.shutdown(within: .seconds(60))

        // The disk damages the queue's file; what is found in it is said, and the user comes again.
        let file = try FileHandle(forUpdating: URL(filePath: path))
        try file.write(contentsOf: Data(repeating: 0xA5, count: 100))
        try file.close()
        let fourth = try launch(server, in: "3", version: 5)
        fourth.identify("bea")
        fourth.handle(.didBecomeActive)
        fourth.handle(.willTerminate)
        clients.append(fourth)
        for _ in 0..<10 where fourth.open?.file.isRecovering == true { #expect(await fourth.flush().failure == nil) }
        #expect(await fourth.flush().remaining == 0)

        let rows = try await store.events()
        let names = Dictionary(grouping: rows, by: \.name).mapValues(\.count)
        // After the reset `bea` is tied to another anonymous id.
        #expect(
            names == [
                "$AppStart": 5, "$AppEnd": 5, "$AppViewScreen": 1, "$identify": 3, "widget": 1, "$QueueDamaged": 1,
            ])
        #expect(rows.allSatisfy { !$0.id.isDerived })
        for client in clients {
            let letters = try await client.deadLetters.list()
            #expect(letters.isEmpty, "\(letters.map { "\($0.reason): \($0.detail)" })")
            await client.shutdown(within: .zero)
        }
        await first.shutdown(within: .zero)
        await server.stop()
    }
}
