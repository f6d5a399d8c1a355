import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

/// The recipes of docs/operations.md, with the very text that stands there.
@Suite("Backup and restore", .endsWhenItHangs)
struct BackupTests {
    private static let headers = ["Authorization": "Bearer \(ServerUnderTest.key)", "Content-Type": "application/json"]

    private static func start(_ store: String) async throws -> (process: ChildProcess, port: Int) {
        let process = try ChildProcess(
            "hapax-server",
            environment: [
                "HAPAX_STORE": store, "HAPAX_PORT": "0", "HAPAX_WRITE_KEYS": "shop=\(ServerUnderTest.key)", "HAPAX_LOG_LEVEL": "critical",
            ])
        return (process, try #require(Int(try await process.line(after: "listening on http://127.0.0.1:"))))
    }

    /// Sends events by their numbers.
    ///
    /// - Returns: How many were stored; the others were duplicates.
    @discardableResult
    private static func send(_ numbers: Range<Int>, to port: Int) async throws -> Int {
        var stored = 0
        for start in stride(from: numbers.lowerBound, to: numbers.upperBound, by: 1_000) {
            let events = (start..<min(start + 1_000, numbers.upperBound)).map {
                Event(id: .derived(name: "paid", key: "\($0)"), name: "paid", time: 0, distinctID: "u").encoded().bytes
            }
            let answer = try await RawHTTP.post(
                port: port, headers: headers, body: EventBatch(envelope: .init(), events: events).encoded())
            let receipt = try Receipt(json: answer.body)
            #expect(receipt.stored + receipt.duplicates == events.count)
            stored += receipt.stored
        }
        return stored
    }

    private static func stop(_ process: ChildProcess, kill: Bool = false) async {
        if kill { process.kill() } else { process.terminate() }
        await process.waitUntilExit()
    }

    @Test(
        "The embedded store is copied while events come; after a restore each acknowledged before is there, and all of them once when sent again"
    )
    func embeddedStoreIsRestored() async throws {
        let directory = TemporaryDirectory()
        let store = "sqlite:\(directory.path)/hapax-data/events.sqlite"
        let environment = ["HAPAX_STORE": store, "BACKUP": directory.path("copy.sqlite")]
        let first = try await Self.start(store)
        var before = 0
        for _ in 0..<20 {
            #expect(try await Self.send(before..<before + 100, to: first.port) == 100)
            before += 100
        }
        let isDone = Locked(false)
        let backing = Task {
            defer { isDone.withLock { $0 = true } }
            return try await Recipe.run(try Recipe.text("backup-sqlite"), in: directory, environment)
        }
        var sent = before
        // So many at most: on a slow disk the copy waits for them, and they for it.
        while sent == before || (!isDone.withLock({ $0 }) && sent < 10_000) {
            #expect(try await Self.send(sent..<sent + 100, to: first.port) == 100)
            sent += 100
        }
        let backed = try await backing.value
        #expect(backed.exit == .exited(0) && backed.text.contains("checked"), "\(backed.text)")
        let again = try await Recipe.run(try Recipe.text("backup-sqlite"), in: directory, environment)
        #expect(again.exit == .exited(1) && again.text.contains("exists already"))
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).filter { $0.contains("copy") } == ["copy.sqlite"])
        // Two at once to one file: one of them makes it, whole.
        async let one = Recipe.run("hapax-server backup two.sqlite", in: directory, environment)
        async let other = Recipe.run("hapax-server backup two.sqlite", in: directory, environment)
        let exits = [try await one.exit, try await other.exit]
        #expect(exits.contains(.exited(0)))
        let integrity = try await DatabaseQueue(path: directory.path("two.sqlite")).read {
            try String.fetchOne($0, sql: "PRAGMA integrity_check")
        }
        #expect(integrity == "ok")
        await Self.stop(first.process, kill: true)

        let restored = try await Recipe.run(try Recipe.text("restore-sqlite"), in: directory, environment)
        #expect(restored.exit == .exited(0), "\(restored.text)")
        let second = try await Self.start(store)
        #expect(try await Self.send(0..<before, to: second.port) == 0)
        try await Self.send(before..<sent, to: second.port)
        #expect(try await Self.send(0..<sent, to: second.port) == 0)
        await Self.stop(second.process)
        let check = try await Recipe.run("hapax-server check", in: directory, environment)
        #expect(check.text.contains(/ok +backup/), "\(check.text)")
    }

    @Test(
        "A backup that is copied beside the log of the store before is not undone in silence: refused with what to do, then it is there (A8)"
    )
    func foreignLogIsRefused() async throws {
        let directory = TemporaryDirectory()
        let (store, file) = ("sqlite:\(directory.path("events.sqlite"))", directory.path("events.sqlite"))
        let environment = ["HAPAX_STORE": store, "HAPAX_PORT": "0", "HAPAX_WRITE_KEYS": "shop=\(ServerUnderTest.key)"]
        for round in 1...2 {
            let server = try await Self.start(store)
            try await Self.send(0..<500, to: server.port)
            let backup = directory.path("backup.\(round)")
            #expect(try await Recipe.run("hapax-server backup \(backup)", in: directory, environment).exit == .exited(0))
            // The log is emptied from time to time.
            var sent = 500
            repeat {
                try await Self.send(sent..<sent + 300, to: server.port)
                sent += 300
            } while try FileManager.default.attributesOfItem(atPath: file + "-wal")[.size] as? Int == 0
            await Self.stop(server.process, kill: true)
            try Data(contentsOf: URL(fileURLWithPath: backup)).write(to: URL(fileURLWithPath: file))
            for command in ["hapax-server", "hapax-server check", "hapax-server keys"] {
                let refused = try await Recipe.run(command, in: directory, environment)
                #expect(
                    refused.exit == .exited(command.hasSuffix("check") ? 2 : 1) && refused.text.contains("events.sqlite-wal"), "\(refused)")
            }
            for suffix in ["-wal", "-shm"] { try FileManager.default.removeItem(atPath: file + suffix) }
            let restored = try await Self.start(store)
            #expect(try await Self.send(0..<500, to: restored.port) == 0)
            #expect(try await Self.send(500..<sent, to: restored.port) == sent - 500)
            await Self.stop(restored.process)
            try FileManager.default.removeItem(atPath: file)
        }
    }

    @Test("PostgreSQL is dumped and restored, roles of its own or not, and the time of the dump is known")
    func dumpIsRestored() async throws {
        let cluster = try await PostgresCluster()
        let directory = TemporaryDirectory()
        let maintenance = cluster.maintenance
        _ = try await cluster.query("CREATE DATABASE hapax ENCODING 'UTF8' TEMPLATE template0", database: maintenance)
        let store = maintenance.replacing(/\/postgres$/, with: "/hapax")
        let environment = ["HAPAX_STORE": store, "MAINTENANCE": maintenance, "BACKUP": directory.path("hapax.dump")]
        let first = try await Self.start(store)
        try await Self.send(0..<500, to: first.port)
        #expect(try await Recipe.run("hapax-server check", in: directory, environment).text.contains(/warn +backup/))
        let backed = try await Recipe.run(try Recipe.text("backup-postgres"), in: directory, environment)
        #expect(backed.exit == .exited(0), "\(backed.text)")
        #expect(try await Recipe.run("hapax-server check", in: directory, environment).text.contains(/ok +backup/))
        try await Self.send(500..<800, to: first.port)
        await Self.stop(first.process)
        let restored = try await Recipe.run(try Recipe.text("restore-postgres"), in: directory, environment)
        #expect(restored.exit == .exited(0), "\(restored.text)")
        let second = try await Self.start(store)
        #expect(try await Self.send(0..<800, to: second.port) == 300)
        #expect(try await cluster.query("SELECT count(*) FROM events", database: store) == [["800"]])
        await Self.stop(second.process)
        for (arguments, code, text) in [("file", 1, "pg_dump"), ("", 64, "--done"), ("file --done", 64, "--done")] {
            let wrong = try await Recipe.run("hapax-server backup \(arguments)", in: directory, environment)
            #expect(wrong.exit == .exited(Int32(code)) && wrong.text.contains(text), "\(arguments)")
        }
        try await cluster.stop(mode: .fast)
    }

    @Test("PostgreSQL goes back to a moment: what was acknowledged until then is there, and what is sent again is stored once")
    func clusterGoesBackToAMoment() async throws {
        let places = TemporaryDirectory()
        let paths = { (directory: String) in ["/srv/archive": "\(directory)/archive", "/srv/base": "\(directory)/base"] }
        // The cluster's own directory is not known before it is there, so the archive lies in one that everybody may use.
        try FileManager.default.setAttributes([.posixPermissions: 0o777], ofItemAtPath: places.path)
        let archive = try Recipe.text("archiving", paths(places.path)).split(separator: "\n").map { line in
            line.replacing(" = ", with: "=").replacing("'", with: "")
        }
        let cluster = try await PostgresCluster(settings: archive.map(String.init))
        try await cluster.run("mkdir '\(places.path)/archive'")
        let store = try await cluster.makeDatabase()
        var environment = ["HAPAX_STORE": store, "MAINTENANCE": cluster.maintenance]
        let first = try await Self.start(store)
        try await Self.send(0..<100, to: first.port)
        try await cluster.run(try Recipe.text("base-backup", paths(places.path)), environment: environment)
        try await Self.send(100..<300, to: first.port)
        environment["MOMENT"] = try await cluster.query("SELECT clock_timestamp()", database: store)[0][0]
        try await Self.send(300..<400, to: first.port)
        await Self.stop(first.process)
        try await cluster.stop(mode: .fast)
        try await cluster.run(try Recipe.text("point-in-time", paths(places.path)), environment: environment)
        try await cluster.start()
        // It takes what is new only when it has reached the moment.
        while try await cluster.query("SELECT pg_is_in_recovery()", database: store) == [["t"]] { await Task.yield() }
        #expect(try await cluster.query("SELECT count(*) FROM events", database: store) == [["300"]])
        let second = try await Self.start(store)
        #expect(try await Self.send(0..<400, to: second.port) == 100)
        await Self.stop(second.process)
        try await cluster.stop(mode: .fast)
    }

    @Test(
        "a backup is made on a disk without hard links, or the disk is refused with a sentence (A7)",
        .enabled(if: FileSystemWithoutLinks.isPossible, "a compiler and a loader that takes other calls are needed"),
        .timeLimit(.minutes(6)), arguments: [true, false])
    func linksAreNotNeeded(renames: Bool) async throws {
        let (disk, directory) = (try await FileSystemWithoutLinks(renames: renames), TemporaryDirectory())
        let store = "sqlite:" + directory.path("events.sqlite")
        let (server, port) = try await Self.start(store)
        try await Self.send(0..<10, to: port)
        let target = directory.path("copy.sqlite")
        for isFirst in [true, false] {
            let backup = try ChildProcess(
                "hapax-server", ["backup", target], environment: disk.environment.merging(["HAPAX_STORE": store]) { $1 })
            let (said, exit) = (await backup.remainingOutput() + (await backup.remainingErrors()), await backup.waitUntilExit())
            #expect((exit == .exited(0)) == (renames && isFirst), "\(said)")
            if !renames {
                #expect(said.contains("another disk"), "\(said)")
            } else if !isFirst {
                #expect(said.contains("exists already"), "\(said)")
            }
        }
        #expect(FileManager.default.fileExists(atPath: target) == renames)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).allSatisfy { !$0.hasSuffix(".partial") })
        await Self.stop(server)
    }
}
