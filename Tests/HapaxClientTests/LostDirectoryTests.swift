import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A queue's files that somebody takes away from under a running client (I1, I13, I15)", .timeLimit(.minutes(2)))
struct LostDirectoryTests {
    enum Mishap: CaseIterable {
        case directoryDeleted, directoryRenamed, directoryReplaced, databaseDeleted, logDeleted, lockDeleted

        func happen(to path: String) throws {
            let files = FileManager.default
            switch self {
            case .directoryDeleted, .directoryReplaced: try files.removeItem(atPath: path)
            case .directoryRenamed: try files.moveItem(atPath: path, toPath: path + "-renamed")
            case .databaseDeleted: try files.removeItem(atPath: path + "/queue.sqlite")
            case .logDeleted: try files.removeItem(atPath: path + "/queue.sqlite-wal")
            case .lockDeleted: try files.removeItem(atPath: path + "/queue.lock")
            }
        }
    }

    @Test(
        "nothing hangs, what was tracked before and is tracked after is delivered, and the next client starts",
        arguments: Mishap.allCases)
    func clientGoesOn(mishap: Mishap) async throws {
        let directory = TemporaryDirectory()
        let test = try TestClient(directory: directory)
        var ids = try await test.track(0..<10)
        try mishap.happen(to: directory.path("queue"))
        ids.append(try #require(test.client.track("afterwards")))
        ids.append(try await test.client.trackDurably("afterwards, durably"))
        let report = await test.client.flush()
        #expect(report.stored == 12 && report.remaining == 0 && report.failure == nil)
        #expect(test.transport.batches.flatMap(\.ids) == ids)
        #expect(await test.client.status().isBalanced)
        await test.client.shutdown(within: .zero)
        let next = try TestClient(directory: directory)
        _ = try await next.client.trackDurably("next")
        #expect(await next.client.flush().stored == 1)
        await next.client.shutdown(within: .zero)
    }

    @Test("a client that has taken the directory over is not disturbed by the one that worked there before, nor by its end")
    func successorIsUndisturbed() async throws {
        let directory = TemporaryDirectory()
        let first = try TestClient(directory: directory)
        try await first.track(0..<10)
        try FileManager.default.removeItem(atPath: directory.path("queue"))
        let second = try TestClient(directory: directory)
        let ids = try await second.track(0..<60)
        try await first.track(10..<60)
        #expect(await first.client.flush().stored == 60)
        await first.client.shutdown(within: .zero)
        let more = try await second.track(60..<100)
        // As by a kill: nothing but what is on disk.
        let third = TemporaryDirectory()
        try FileManager.default.copyItem(atPath: directory.path("queue"), toPath: third.path("queue"))
        #expect(await second.client.flush().stored == 100)
        await second.client.shutdown(within: .zero)
        let copy = try TestClient(directory: third)
        #expect(await copy.client.flush().stored == 100)
        #expect(copy.transport.batches.flatMap(\.ids) == ids + more)
        await copy.client.shutdown(within: .zero)
    }
}
