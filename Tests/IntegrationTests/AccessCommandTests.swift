import Foundation
import GRDB
import HapaxClient
import HapaxModel
import TestSupport
import Testing

@Suite("Projects and keys on the command line", .endsWhenItHangs)
struct AccessCommandTests {
    private typealias Answer = (text: String, exit: ChildProcess.Exit, note: String)

    private static func run(_ arguments: [String], _ environment: [String: String]) async throws -> Answer {
        let child = try ChildProcess("hapax-server", arguments, environment: environment)
        let text = await child.remainingOutput()
        return (text, await child.waitUntilExit(), await child.remainingErrors())
    }

    @Test("From nothing: a project is added on the command line, its keys work, one is rotated and revoked; the file in use is not changed")
    func commandLineMakesKeys() async throws {
        let directory = TemporaryDirectory()
        let environment = [
            "HAPAX_STORE": "sqlite:\(directory.path)/events.sqlite", "HAPAX_PORT": "0", "HAPAX_LOG_LEVEL": "critical",
            "HAPAX_ADMIN_KEY": "key-of-the-settings",
        ]
        func run(_ arguments: String...) async throws -> (text: String, exit: ChildProcess.Exit, note: String) {
            let child = try ChildProcess("hapax-server", arguments, environment: environment)
            let text = await child.remainingOutput()
            let exit = await child.waitUntilExit()
            return (text, exit, child.standardErrorTail)
        }
        // To look for something makes nothing.
        #expect(try await run("keys").exit == .exited(1) && !FileManager.default.fileExists(atPath: "\(directory.path)/events.sqlite"))
        let added = try await run("projects", "add", "shop")
        let keys = Dictionary(
            uniqueKeysWithValues: added.text.split(separator: "\n").map { line in
                (String(line.split(separator: " ")[0]), String(line.split(separator: " ")[1]))
            })
        #expect(Set(keys.keys) == ["write", "read"] && added.exit == .exited(0) && added.note.contains("only now"))
        let admin = try await run("keys", "add", "admin", "--name", "me").text.split(separator: "\n").joined()
        let rotated = try await run("keys", "rotate", "1", "--grace", "0")
        #expect(rotated.text.hasPrefix("hapax_w_") && rotated.exit == .exited(0))
        #expect(try await run("keys", "revoke", "2").exit == .exited(0))
        for (arguments, code) in [
            (["projects", "add", "shop"], 1), (["keys", "revoke", "99"], 1), (["keys", "add", "write"], 1),
            (["keys", "add", "writer"], 64),
            (["projects", "set", "shop"], 64), (["projects", "set", "shop", "--limit=-1"], 1),
            (["projects", "set", "shop", "--limit", "9"], 0),
            (["projects", "set", "shop", "--time-zone", "PST"], 1), (["projects", "set", "shop", "--time-zone", "Asia/Kolkata"], 0),
            (["projects", "add", "app", "--time-zone", "Nowhere/Now"], 1), (["projects", "add", "app", "--time-zone", "Japan"], 0),
            (["keys", "rotate", "4", "--grace", "soon"], 64), (["keys", "add", "admin", "--expires", "0d"], 64), (["keys", "frob"], 64),
            // A number is written in one way; a key is no name (S25).
            (["keys", "rotate", "00004"], 64), (["keys", "revoke", "+4"], 64), (["keys", "add", "admin", "--name", admin], 1),
            (["keys", "add", "admin", "--name", "key-of-the-settings"], 1),
        ] {
            let child = try ChildProcess("hapax-server", arguments, environment: environment)
            #expect(await child.waitUntilExit() == .exited(Int32(code)), "\(arguments)")
        }
        let projects = try await run("projects").text.split(separator: "\n")
        #expect(projects.count == 3 && projects[1].contains("Japan  ") && projects[2].contains("Asia/Kolkata"), "\(projects)")
        // Somebody sends derived ids with a write key.
        let today = String(Date().ISO8601Format().prefix(10))
        let store = try DatabaseQueue(path: "\(directory.path)/events.sqlite")
        try await store.write { try $0.execute(sql: "INSERT INTO derived_ids VALUES (1, ?, 1, 'paid', 7)", arguments: [today]) }
        try store.close()
        let warned = try await run("projects", "set", "shop", "--derived-ids", "server")
        #expect(warned.exit == .exited(1) && warned.note.contains("7 of paid with key 1"))
        #expect(try await run("projects", "set", "shop", "--derived-ids", "server", "--yes").exit == .exited(0))
        #expect(try await run("projects", "set", "shop", "--derived-ids", "any").exit == .exited(0))
        let server = try ChildProcess("hapax-server", environment: environment)
        let port = try #require(Int(try await server.line(after: "listening on http://127.0.0.1:")))
        let body =
            Array("[".utf8) + Event(id: .derived(name: "paid", key: "1"), name: "paid", time: 0, distinctID: "u").encoded().bytes
            + Array("]".utf8)
        for (key, status) in [(keys["write"] ?? "", 401), (String(rotated.text.prefix(44)), 200), (admin, 403)] {
            let headers = ["Authorization": "Bearer \(key)", "Content-Type": "application/json"]
            #expect(try await RawHTTP.post(port: port, headers: headers, body: body).status == status)
        }
        let list = try await run("keys")
        #expect(list.exit == .exited(0) && list.text.contains("revoked") && list.text.contains("me"))
        for key in keys.values { #expect(!list.text.contains(key.prefix(16))) }
        let audit = try await run("audit", "--project", "shop")
        #expect(audit.text.contains(" on ") && audit.text.contains("projects set") && audit.text.contains("keys rotate"), "\(audit)")
        #expect(try await run("audit", "--json").text.contains(#""verb":"keys add","project":null,"detail":"admin, me""#))
        let refused = try await run("keys", "add", "read", "--project", "shop")
        #expect(refused.exit == .exited(1) && refused.text.isEmpty && refused.note.contains("/v1/admin") == false)
        #expect(try await run("keys", "--help").text.contains("rotate"))
        server.terminate()
        _ = await server.waitUntilExit()
    }

    @Test("erase tells what would go, erases it with --yes from the file's very bytes, and lists what was done")
    func commandLineErases() async throws {
        let directory = TemporaryDirectory()
        let environment = [
            "HAPAX_STORE": "sqlite:\(directory.path)/events.sqlite", "HAPAX_PORT": "0", "HAPAX_LOG_LEVEL": "critical",
            "HAPAX_WRITE_KEYS": "shop=\(ServerUnderTest.key)",
        ]
        func erase(_ arguments: String...) async throws -> Answer {
            try await Self.run(["erase"] + arguments, environment)
        }
        func bytes() -> Data {
            ["", "-wal"].reduce(into: Data()) { data, suffix in
                data += FileManager.default.contents(atPath: "\(directory.path)/events.sqlite\(suffix)") ?? Data()
            }
        }
        let server = try ChildProcess("hapax-server", environment: environment)
        let port = try #require(Int(try await server.line(after: "listening on http://127.0.0.1:")))
        let events = (1...300).map { number in
            Event(
                id: .derived(name: "paid", key: "\(number)"), name: "paid", time: 0, distinctID: "canary-\(number % 2)",
                properties: ["note": String(repeating: "canary-\(number % 2) ", count: number)]
            ).encoded().bytes
        }
        let headers = ["Authorization": "Bearer \(ServerUnderTest.key)", "Content-Type": "application/json"]
        let body = EventBatch(envelope: .init(), events: events).encoded()
        #expect(try await RawHTTP.post(port: port, headers: headers, body: body).status == 200)
        let busy = try await erase("--project", "shop", "--user", "canary-1", "--yes")
        #expect(busy.exit == .exited(1) && busy.note.contains("over HTTP"))
        server.terminate()
        _ = await server.waitUntilExit()

        let preview = try await erase("--project", "shop", "--user", "canary-1")
        #expect(preview.exit == .exited(0) && preview.text.hasPrefix("150 events received from") && preview.note.contains("--yes"))
        #expect(bytes().range(of: Data("canary-1".utf8)) != nil)
        let before = directory.path("before.sqlite")
        let backup = try ChildProcess("hapax-server", ["backup", before], environment: environment)
        #expect(await backup.waitUntilExit() == .exited(0))
        let record = directory.path("erased.ndjson")
        let done = try await erase("--project", "shop", "--user", "canary-1", "--yes", "--record", record)
        #expect(done.text == "150 events erased\n" && done.exit == .exited(0))
        #expect(bytes().range(of: Data("canary-1".utf8)) == nil && bytes().range(of: Data("canary-0".utf8)) != nil)
        let log = try await erase("--log")
        #expect(log.text.contains("shop") && log.text.contains("150") && !log.text.contains("canary"))
        // A backup from before holds the user again, and the record erases it again.
        try FileManager.default.removeItem(atPath: directory.path("events.sqlite"))
        try FileManager.default.copyItem(atPath: before, toPath: directory.path("events.sqlite"))
        #expect(try await erase("--replay", record).text.hasPrefix("line 1: 150 events received"))
        // A line that cannot be done keeps none of the others from it.
        let broken = directory.path("broken.ndjson")
        let line = try String(contentsOfFile: record, encoding: .utf8)
        try "{\"project\":\"nope\",\"user\":\"u\"}\n{\"proj\n\n\(line)".write(toFile: broken, atomically: true, encoding: .utf8)
        let partly = try await erase("--replay", broken, "--yes")
        #expect(
            partly.exit == .exited(1) && partly.note.contains("line 1") && partly.note.contains("line 2") && partly.note.contains("150"))
        #expect(try await erase("--replay", record, "--yes").text == "line 1: 0 events erased\n")
        #expect(bytes().range(of: Data("canary-1".utf8)) == nil)
        for (arguments, code) in [
            (["--project", "shop"], 64), ([], 64), (["--log", "--yes"], 64), (["--project", "nope", "--user", "u", "--yes"], 1),
            (["--project", "shop", "--user", "", "--yes"], 1), (["--replay", directory.path("nothing"), "--yes"], 1),
            (["--replay", record, "--project", "shop"], 64), (["--project", "shop", "--user", "u", "--yes", "--record", "/nowhere/x"], 1),
            (["--unblock", "--yes", "--project", "shop", "--user", "u"], 64), (["--unblock", "--project", "shop", "--user", "u"], 1),
            (["--project", "shop", "--user", "canary-0", "--yes", "--block", "--record", record], 0),
            (["--unblock", "--project", "shop", "--user", "canary-0", "--record", record], 0),
            (["--unblock", "--project", "shop", "--user", "canary-0", "--record", record], 1),
        ] as [([String], Int32)] {
            let child = try ChildProcess("hapax-server", ["erase"] + arguments, environment: environment)
            #expect(await child.waitUntilExit() == .exited(code), "\(arguments)")
        }
        // Each change is a line of its own, also behind one that was torn; what is replayed says of each line what became of it (A13).
        let lines = try String(contentsOfFile: record, encoding: .utf8)
        #expect(
            lines.hasSuffix("\n")
                && lines.split(separator: "\n", omittingEmptySubsequences: false).map { !$0.isEmpty } == [true, true, true, false])
        #expect(lines.contains(#""block":true"#) && lines.contains(#""unblock":true"#), "\(lines)")
        try (lines + "{\"torn").write(toFile: record, atomically: true, encoding: .utf8)
        #expect(try await erase("--project", "shop", "--user", "nobody", "--yes", "--record", record).exit == .exited(0))
        #expect(try String(contentsOfFile: record, encoding: .utf8).hasPrefix(lines + "{\"torn\n{"))
        try lines.write(toFile: record, atomically: true, encoding: .utf8)
        let planned = try await erase("--replay", record)
        #expect(planned.text == "line 1: 0 events\nline 2: 0 events, to be blocked\nline 3: to be unblocked\n")
        let again = try await erase("--replay", record, "--yes")
        #expect(again.text == "line 1: 0 events erased\nline 2: 0 events erased, blocked\nline 3: unblocked\n", "\(again)")
        let blocked = try await DatabaseQueue(path: directory.path("events.sqlite")).read {
            try Int.fetchOne($0, sql: "SELECT count(*) FROM blocked_users")
        }
        #expect(blocked == 0, "who was unblocked stays so")
        try #"{"project":"shop","user":"canary-0","unblock":true}"#.write(toFile: record, atomically: true, encoding: .utf8)
        #expect(try await erase("--replay", record, "--yes").text == "line 1: not blocked\n")
    }

    @Test("retention shows what is kept, tells what would go, and with --yes lets it go; exit codes")
    func commandLineKeeps() async throws {
        let directory = TemporaryDirectory()
        let environment = [
            "HAPAX_STORE": "sqlite:\(directory.path)/events.sqlite", "HAPAX_PORT": "0", "HAPAX_LOG_LEVEL": "critical",
            "HAPAX_WRITE_KEYS": "shop=\(ServerUnderTest.key)",
        ]
        func retention(_ arguments: String...) async throws -> Answer {
            try await Self.run(["retention"] + arguments, environment)
        }
        #expect(try await retention().exit == .exited(1))
        let server = try ChildProcess("hapax-server", environment: environment)
        let port = try #require(Int(try await server.line(after: "listening on http://127.0.0.1:")))
        // The latest row stays, so that its number is not given again.
        let ids = (1...4).compactMap { EventID(high: (1_714_867_200_000 as UInt64) << 16 | 0x7000, low: 0b10 << 62 | $0) }
        let events = ids.map { Event(id: $0, name: "paid", time: 0, distinctID: "u").encoded().bytes }
        let headers = ["Authorization": "Bearer \(ServerUnderTest.key)", "Content-Type": "application/json"]
        let body = EventBatch(envelope: .init(), events: events).encoded()
        #expect(try await RawHTTP.post(port: port, headers: headers, body: body).status == 200)
        #expect(try await retention().text.contains("for ever"))
        for arguments in [["set", "2"], ["set", "2", "--yes"], ["apply"]] {
            let child = try ChildProcess("hapax-server", ["retention"] + arguments, environment: environment)
            #expect(await child.waitUntilExit() == .exited(1), "\(arguments)")
        }
        server.terminate()
        _ = await server.waitUntilExit()
        func rows() throws -> Int? {
            try DatabaseQueue(path: "\(directory.path)/events.sqlite").read { try Int.fetchOne($0, sql: "SELECT count(*) FROM events") }
        }
        #expect(try await retention("set", "2").note.contains("Nothing has been changed"))
        #expect(try rows() == 4)
        let set = try await retention("set", "2", "--yes")
        #expect(set.exit == .exited(0) && set.text.hasPrefix("Events are kept for 2 months") && set.text.contains("have been removed"))
        #expect(try rows() == 1)
        let tombstones = try await DatabaseQueue(path: "\(directory.path)/events.sqlite").read {
            try Int.fetchOne($0, sql: "SELECT count(*) FROM events WHERE event = ''")
        }
        #expect(tombstones == 1)
        #expect(try await retention("--json").text.contains(#""months":2"#))
        #expect(try await retention("apply").exit == .exited(0))
        #expect(try await retention("set", "forever", "--yes").text.contains("for ever"))
        for arguments in [["set", "1"], ["set", "soon"], ["set"], ["set", "0", "--yes"], ["frob"]] {
            let child = try ChildProcess("hapax-server", ["retention"] + arguments, environment: environment)
            #expect(await child.waitUntilExit() == .exited(64), "\(arguments)")
        }
    }

    @Test(
        "what waits under a write key is sent with the key that replaces it, to the same project and to no other, also before anything is tracked under that (I1, C31)",
        arguments: [true, false])
    func rotatedKeyGoesOn(isTracked: Bool) async throws {
        let directory = TemporaryDirectory()
        let store = directory.path("events.sqlite")
        let environment = ["HAPAX_STORE": "sqlite:\(store)", "HAPAX_PORT": "0", "HAPAX_LOG_LEVEL": "critical"]
        func run(_ arguments: String...) async throws -> [String] {
            let child = try ChildProcess("hapax-server", arguments, environment: environment)
            let text = await child.remainingOutput()
            #expect(await child.waitUntilExit() == .exited(0))
            return text.split(whereSeparator: \.isWhitespace).map(String.init)
        }
        let (first, other) = (try await run("projects", "add", "shop")[1], try await run("projects", "add", "app")[1])
        let port = try LoopbackPort.unused()
        func serving(_ body: () async throws -> Void) async throws {
            let server = try ChildProcess("hapax-server", environment: environment.merging(["HAPAX_PORT": "\(port)"]) { $1 })
            _ = try await server.line(after: "listening on")
            try await body()
            server.terminate()
            _ = await server.waitUntilExit()
        }
        /// A process that tracks some events and sends what it may, then some more, which stay.
        func client(_ key: String, sends: [String], leaves: [String] = []) async throws {
            var configuration = EventClient.Configuration(
                server: "http://127.0.0.1:\(port)", writeKey: key, queueDirectory: directory.path("queue"))
            configuration.uploads.interval = nil
            configuration.distinctID = "somebody"
            let client = try EventClient.start(configuration)
            for name in sends { try await client.trackDurably(name) }
            _ = await client.flush()
            for name in leaves { try await client.trackDurably(name) }
            await client.shutdown(within: .zero)
        }
        try await serving {
            try await client(first, sends: ["before"], leaves: ["waits"])
        }
        let second = try await run("keys", "rotate", "1", "--grace", "0")[0]
        try await serving {
            try await client(other, sends: ["of another project"])
            if isTracked { try await client(second, sends: ["behind"]) }
            // Who flushes, or stays for a while, looks after what others have left.
            let flush = try ChildProcess(
                "hapax", ["flush"],
                environment: [
                    "HAPAX_SERVER": "http://127.0.0.1:\(port)", "HAPAX_KEY": second, "HAPAX_QUEUE": directory.path("queue"),
                ])
            #expect(await flush.waitUntilExit() == .exited(0))
        }
        let rows = try await DatabaseQueue(path: store).read { db in
            try String.fetchAll(db, sql: "SELECT p.name || ' ' || event FROM events JOIN projects p USING (project_id) ORDER BY row")
        }
        #expect(rows == ["shop before", "app of another project"] + (isTracked ? ["shop behind"] : []) + ["shop waits"])
    }
}
