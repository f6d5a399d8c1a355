import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import HapaxSQLite
import TestSupport
import Testing

@testable import HapaxClient

@Suite("A queue's files that somebody takes away from under a running client (I1, I13, I15)", .endsWhenItHangs)
struct LostDirectoryTests {
    enum Mishap: CaseIterable {
        case directoryDeleted, directoryRenamed, directoryReplaced, databaseDeleted, logDeleted, lockDeleted

        var takesTheFile: Bool { self != .logDeleted }

        func happen(to path: String) throws {
            let files = FileManager.default
            switch self {
            case .directoryDeleted, .directoryReplaced: try files.removeItem(atPath: path)
            case .directoryRenamed: try files.moveItem(atPath: path, toPath: path + "-renamed")
            case .databaseDeleted: try files.removeItem(atPath: path + "/1.sqlite")
            case .logDeleted: try files.removeItem(atPath: path + "/1.sqlite-wal")
            case .lockDeleted: try files.removeItem(atPath: path + "/1.lock")
            }
        }
    }

    @Test(
        "nothing hangs; what was stored before is delivered, what comes later does not count as stored; the next client starts",
        arguments: Mishap.allCases)
    func clientGoesOn(mishap: Mishap) async throws {
        let directory = TemporaryDirectory()
        let test = try TestClient(directory: directory)
        let ids = try await test.track(0..<10)
        try mishap.happen(to: directory.path("queue"))
        let report: FlushReport
        if mishap.takesTheFile {
            await #expect(throws: TrackError.self) { try await test.client.trackDurably("afterwards, durably") }
            test.client.track("afterwards")
            report = await test.client.flush()
            #expect(report.stored == 10 && report.remaining == 2 && report.failure == .queue(StorageFailure(Self.moved)))
            #expect(await test.client.status().storageFailure?.code == Self.moved.extendedResultCode.rawValue)
            #expect(test.transport.batches.flatMap(\.ids) == ids)
            let last = await test.shutdownStuck()
            #expect(last.stored == 0 && last.lost == 2)
        } else {
            let later = try #require(test.client.track("afterwards"))
            let durable = try await test.client.trackDurably("afterwards, durably")
            report = await test.client.flush()
            #expect(report.stored == 12 && report.remaining == 0 && report.failure == nil)
            #expect(test.transport.batches.flatMap(\.ids) == ids + [later, durable])
            await test.client.shutdown(within: .zero)
        }
        let next = try TestClient(directory: directory)
        _ = try await next.client.trackDurably("next")
        _ = await next.client.flush()
        // Of a database that was deleted the log is left: that is told.
        let isTold = mishap == .databaseDeleted
        #expect(next.transport.batches.flatMap(\.names) == (isTold ? ["next", "$QueueDamaged"] : ["next"]))
        #expect(next.transport.batches[0].scanned.envelope.installID != test.client.file.counters.installID || !mishap.takesTheFile)
        await next.client.shutdown(within: .zero)
    }

    private static let moved = DatabaseError(resultCode: .SQLITE_READONLY_DBMOVED)

    @Test("who uses the app is not saved in a file that no later client will find, and that is told (R56)")
    func identityIsNotPersisted() async throws {
        let directory = TemporaryDirectory()
        let test = try TestClient(directory: directory)
        test.client.identify("anna")
        try await test.client.waitUntilStored()
        try FileManager.default.removeItem(atPath: directory.path("queue"))
        test.client.reset()
        // The attempt behind the first, which has failed.
        await test.clock.scheduled(1)
        await #expect(throws: TrackError.notStored(StorageFailure(Self.moved))) {
            try await test.client.writer.barrier(retrying: true)
        }
        #expect(await test.client.status().storageFailure == StorageFailure(Self.moved))
    }

    @Test("a directory that comes back: what was kept in memory is stored in it")
    func returnedDirectoryIsUsed() async throws {
        let directory = TemporaryDirectory()
        let test = try TestClient(directory: directory)
        try await test.track(0..<10)
        let (path, elsewhere) = (directory.path("queue"), directory.path("elsewhere"))
        try FileManager.default.moveItem(atPath: path, toPath: elsewhere)
        test.client.track("afterwards")
        #expect(await test.client.flush().remaining == 1)
        try FileManager.default.moveItem(atPath: elsewhere, toPath: path)
        let report = await test.client.flush()
        #expect(report.stored == 1 && report.remaining == 0 && report.failure == nil)
        await test.client.shutdown(within: .zero)
    }

    @Test("what was not delivered from a file that was deleted is lost with the process, and shutdown says so (I12)")
    func shutdownCountsWhatIsLost() async throws {
        let directory = TemporaryDirectory()
        let test = try TestClient(directory: directory)
        try await test.track(0..<10)
        try FileManager.default.removeItem(atPath: directory.path("queue"))
        let report = await test.client.shutdown(within: .zero)
        #expect(report.stored == 0 && report.lost == 10)
    }

    @Test("events that were refused since are dead letters in no file that anybody finds: they count as lost as well (I12)")
    func lettersWithoutAFileAreLost() async throws {
        let directory = TemporaryDirectory()
        let test = try TestClient(directory: directory)
        let refused = Set(try await test.track(0..<10).prefix(4))
        try FileManager.default.removeItem(atPath: directory.path("queue"))
        test.transport.script { .success($0.receipt { $0.id.map(refused.contains) == true ? .rejected : .stored }) }
        #expect(await test.client.flush().deadLettered == 4)
        await #expect(throws: StorageFailure(Self.moved)) { try await test.client.deadLetters.retry() }
        let report = await test.client.shutdown(within: .zero)
        #expect(report.stored == 0 && report.lost == 4)
    }

    @Test("damage of a file that was deleted takes nothing away from the client that works in its place now (I1, I11)")
    func successorsFileIsNotSetAside() async throws {
        let directory = TemporaryDirectory()
        let first = try TestClient(directory: directory)
        try await first.track(0..<10)
        try FileManager.default.removeItem(atPath: directory.path("queue"))
        let second = try TestClient(directory: directory)
        let ids = try await second.track(0..<10)
        let queue = first.client.file
        for _ in 0..<2 {
            #expect(throws: DatabaseError.self) {
                try queue.reading { _ in throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
            }
        }
        #expect(await first.client.flush().stored == 10, "what can still be read is sent")
        await first.client.shutdown(within: .zero)
        #expect(try second.client.file.hasFile && second.client.file.directory.filesSetAside().isEmpty)
        #expect(await second.client.flush().stored == 10)
        #expect(second.transport.batches.flatMap(\.ids) == ids)
        await second.client.shutdown(within: .zero)
    }

    @Test("a client that has taken the directory over is not disturbed by the one that worked there before, nor by its end")
    func successorIsUndisturbed() async throws {
        let directory = TemporaryDirectory()
        let first = try TestClient(directory: directory)
        try await first.track(0..<10)
        try FileManager.default.removeItem(atPath: directory.path("queue"))
        let second = try TestClient(directory: directory)
        let ids = try await second.track(0..<60)
        for index in 10..<60 { first.client.track("event \(index)") }
        #expect(await first.client.flush().stored == 10)
        #expect(await first.shutdownStuck().lost == 50)
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

extension TestClient {
    /// Lets the time pass that a shutdown gives to what cannot be stored.
    fileprivate func shutdownStuck() async -> ShutdownReport {
        let scheduled = clock.pending.count
        async let report = client.shutdown(within: .zero)
        await clock.scheduled(scheduled + 3)
        clock.advance(by: .milliseconds(500))
        return await report
    }
}
