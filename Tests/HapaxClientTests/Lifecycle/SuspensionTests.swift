import Foundation
import GRDB
import HapaxModel
import HapaxTestKit
import TestSupport
import Testing

@testable import HapaxClient

@Suite("What a suspended client holds", .endsWhenItHangs)
struct SuspensionTests {
    @Test(
        "the containers that iOS apps share are known by their path",
        arguments: [
            ("/private/var/mobile/Containers/Shared/AppGroup/0F1E/hapax", true),
            ("/Users/me/Library/Developer/CoreSimulator/Devices/0F1E/data/Containers/Shared/AppGroup/0F1E/a/../hapax", true),
            ("/var/mobile/Containers/Data/Application/0F1E/Library/hapax", false),
            ("/var/mobile/Containers/Data/Application/0F1E/Shared/AppGroup/hapax", false),
            ("/srv/hapax", false),
        ])
    func sharedContainersAreKnown(path: String, isShared: Bool) {
        #expect(SharedContainer.holds(path) == isShared)
    }

    @Test("a queue in a shared container is refused where apps are suspended, before anything is made")
    func sharedContainerIsRefused() throws {
        let directory = TemporaryDirectory()
        let path = directory.path + "/Containers/Shared/AppGroup/0F1E/hapax"
        let configuration = EventClient.Configuration(server: "http://127.0.0.1:1", writeKey: "key", queueDirectory: path)
        #expect(throws: StartError.sharedContainer) { try configuration.checkDirectory(refusingSharedContainers: true) }
        try configuration.checkDirectory(refusingSharedContainers: false)
        #expect(!FileManager.default.fileExists(atPath: path))
    }

    #if os(Linux)
    /// This process's locks on one file: what kind, and whether it excludes others. Not from `/proc/locks`, which is read in pieces while
    /// every other test locks and unlocks.
    private func locks(on path: String) throws -> [(kind: String, access: String)] {
        let path = URL(fileURLWithPath: path).resolvingSymlinksInPath().path
        let numbers = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").filter {
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + $0)) == path
        }
        let texts = numbers.compactMap { try? FileHandle(forReadingFrom: URL(filePath: "/proc/self/fdinfo/" + $0)).readToEnd() }
        return texts.flatMap { String(decoding: $0, as: UTF8.self).split(separator: "\n") }.compactMap { line in
            // "lock:	1: POSIX  ADVISORY  READ 2462 fe:00:16662950 128 128"
            let fields = line.split { $0 == " " || $0 == "\t" }.map(String.init)
            return fields.count > 4 && fields[0] == "lock:" ? (fields[2], fields[4]) : nil
        }
    }

    @Test("between transactions a client holds its lock file, and of SQLite's locks none that keeps anybody from reading or writing")
    func idleClientHoldsNoWriteLock() async throws {
        let test = try TestClient()
        try await test.track(0..<100)
        #expect(await test.client.flush().stored == 100)
        let directory = test.client.file.directory
        let lock = try locks(on: directory.lockPath(1))
        #expect(lock.map(\.kind) == ["FLOCK"] && lock.map(\.access) == ["WRITE"])
        for suffix in ["", "-wal", "-shm"] {
            let held = try locks(on: directory.databasePath(1) + suffix)
            #expect((suffix == "-wal" || !held.isEmpty) && held.allSatisfy { $0.kind == "POSIX" && $0.access == "READ" }, "\(suffix)")
        }
        // The control: within a transaction there is one, and the table shows it.
        let during = try await test.client.file.database.writeWithoutTransaction { db in
            try db.execute(sql: "BEGIN IMMEDIATE")
            defer { try? db.execute(sql: "ROLLBACK") }
            return try locks(on: directory.databasePath(1) + "-shm").map(\.access)
        }
        #expect(during.contains("WRITE"))
    }

    @Test("a second client of the process, and a look at the directory, take none of the first one's locks from it (I1, I6)")
    func neighboursTakeNoLocks() async throws {
        let test = try TestClient()
        try await test.track(0..<10)
        let paths = ["", "-shm"].map { test.client.file.directory.databasePath(1) + $0 }
        let before = try paths.map { try locks(on: $0).count }
        // Closing any descriptor of a file gives up all of the process's locks on it (fcntl(2)).
        for _ in 0..<2 {
            let second = try TestClient(directory: test.directory)
            _ = await second.client.leftovers.send(isManual: true)
            await second.client.shutdown(within: .zero)
        }
        let after = try paths.map { try locks(on: $0).count }
        #expect(after == before && before.allSatisfy { $0 > 0 })
        await test.client.shutdown(within: .zero)
    }
    #endif
}
