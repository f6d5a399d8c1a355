import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// What spools cost, and how many there can be.
extension SpoolTests {
    private var queue: QueueDirectory { QueueDirectory(path: directory.path + "/queue") }

    @Test("a spool that waits for its delivery holds no room back (I13)")
    func closedSpoolsHaveNoBallast() async throws {
        let main = try open()
        let spool = try open()
        #expect(FileManager.default.fileExists(atPath: spool.client.queue.directory.ballastPath))
        try await spool.client.trackDurably("spooled")
        await spool.client.shutdown(within: .zero)
        #expect(spools.count == 1 && !FileManager.default.fileExists(atPath: spool.client.queue.directory.ballastPath))
        #expect(FileManager.default.fileExists(atPath: queue.ballastPath))
        await main.client.shutdown(within: .zero)
        #expect(FileManager.default.fileExists(atPath: queue.ballastPath), "the main queue's stays")
    }

    @Test("where a spool finds no room for a ballast, it has the main queue's (I13)")
    func ballastIsLent() throws {
        func open(_ directory: QueueDirectory) throws -> EventQueue {
            var ids = UUIDv7Generator()
            return try EventQueue(
                directory: directory, durability: .process, newInstallID: ids.next(unixMilliseconds: 1),
                isSpool: directory.path != queue.path)
        }
        let (main, spool) = (try open(queue), try open(queue.spool(named: "1")))
        main.lendBallast(to: spool)
        #expect(FileManager.default.fileExists(atPath: queue.ballastPath), "it needs none")
        spool.ballast.withLock { $0.release() }
        main.lendBallast(to: spool)
        #expect(!FileManager.default.fileExists(atPath: queue.ballastPath))
        try main.append([PreparedEvent.sample(1, fill: 10)])
        #expect(FileManager.default.fileExists(atPath: queue.ballastPath), "taken up again")
        spool.close()
        main.close()
    }

    @Test("while it is delivered, and no longer (I13)")
    func ballastIsLentForADelivery() async throws {
        let main = try open()
        let spool = try open()
        try await spool.client.trackDurably("spooled")
        await spool.client.shutdown(within: .zero)
        // As on a disk without room for it.
        try FileManager.default.createDirectory(atPath: spool.client.queue.directory.ballastPath, withIntermediateDirectories: false)
        let isKept = Locked<[Bool]>([])
        main.transport.script { [queue] batch in
            isKept.withLock { $0.append(FileManager.default.fileExists(atPath: queue.ballastPath)) }
            return .success(batch.receipt())
        }
        #expect(await main.client.flush().stored == 1)
        try await main.client.trackDurably("later")
        #expect(await main.client.flush().stored == 1)
        #expect(isKept.withLock { $0 } == [false, true])
        await main.client.shutdown(within: .zero)
    }

    @Test("where none can be made, that is told rather than tried for ever (I15)")
    func impossibleSpoolIsTold() async throws {
        let main = try open()
        try Data().write(to: URL(fileURLWithPath: queue.spoolPath))
        #expect(throws: StartError.self) { try open() }
        await main.client.shutdown(within: .zero)
    }

    @Test("a file among the spools is none of them, and no failure")
    func strayFilesAreNoSpools() async throws {
        let main = try open()
        try FileManager.default.createDirectory(atPath: queue.spoolPath, withIntermediateDirectories: true)
        try Data("x".utf8).write(to: URL(fileURLWithPath: queue.spoolPath + "/.DS_Store"))
        #expect(try queue.spools().isEmpty && !queue.holdsMore)
        #expect(await main.client.flush().failure == nil)
        await main.client.shutdown(within: .zero)
    }

    @Test("where ten thousand spools wait no more are begun: the caller is told (I13)")
    func spoolsAreBounded() throws {
        let main = try open()
        for number in 1..<QueueDirectory.maximumSpools {
            try FileManager.default.createDirectory(
                atPath: queue.spoolPath + "/\(number)", withIntermediateDirectories: number == 1)
        }
        let last = try open()
        #expect(last.client.queue.isSpool)
        #expect(throws: StartError.queueTaken) { try open() }
        last.client.queue.close()
        main.client.queue.close()
    }
}
