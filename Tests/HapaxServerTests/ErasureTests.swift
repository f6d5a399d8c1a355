import Foundation
import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

@Suite("Erasing users (I2)", .endsWhenItHangs)
struct ErasureTests {
    private static let user = "canary-user"

    /// A dated id, an undated one and a derived one in turn, in several months.
    private static func id(_ number: UInt64) -> EventID {
        switch number % 3 {
        case 0: Sample.id(number, day: Sample.day + Int32(number % 90))
        case 1: EventID(high: 0x4000 | number << 16, low: 0b10 << 62 | number) ?? Sample.id(number)
        default: EventID.derived(name: "order_paid", key: "\(number)")
        }
    }

    /// Stores events as a request of theirs does.
    private static func send(
        _ numbers: Range<UInt64>, of user: String = user, word: String = "canary-value", project: Int32 = 1, to store: any EventStore
    ) async throws -> Set<Receipt.Outcome> {
        let events = numbers.map {
            Sample.event(id($0), name: "canary-name", distinctID: user, sequence: Int64($0), properties: ["p": word])
        }
        let envelope = EventBatch.Envelope(sentAt: Sample.now, installID: Sample.id(77))
        let group = CommitGroup([try Sample.request(events, project: project, envelope: envelope)], horizon: 0)
        let found = try await store.commit(group.storeGroup, writer: 0)
        // Whatever differs would be compared, or be sent again.
        #expect(group.repeats(found: found).isEmpty)
        return Set(group.outcomes(found: found).flatMap { (outcome: IngestOutcome) in outcome.outcomes })
    }

    @Test(
        "Of an erased user no table holds anything; the ids stay and are duplicates whatever comes under them; others stay",
        arguments: StoreUnderTest.Kind.allCases)
    func erasedUserLeavesNothing(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        let erasures = Erasures(database: store.sql)
        for project in ["shop", "app"] { _ = try await store.projectID(named: project) }
        #expect(try await Self.send(1..<31, to: store) == [.stored])
        #expect(try await Self.send(31..<41, of: "somebody-else", to: store) == [.stored])
        // The same user of another project is somebody else.
        #expect(try await Self.send(1..<2, project: 2, to: store) == [.stored])
        let first = kind == .postgres ? "now()" : "0"
        try await fixture.execute(
            "INSERT INTO report_users (project_id, distinct_id, first_start) VALUES (1, '\(Self.user)', \(first)), (1, 'somebody-else', \(first))"
        )

        #expect(try await erasures.preview(project: "shop", user: Self.user).rows == 30)
        #expect(try await fixture.rows("SELECT count(*) FROM kept_events") == [["41"]])
        let asked = try await erasures.add(project: "shop", user: Self.user)
        #expect(asked.doneAt == nil && asked.user == Self.user)
        let done = try #require(try await erasures.perform(asked))
        #expect(done.rows == 30 && done.doneAt != nil && done.user == nil)
        #expect(try await erasures.preview(project: "shop", user: Self.user).rows == 0)

        let tombstones = "project_id = 1 AND event = ''"
        #expect(try await fixture.rows("SELECT count(*) FROM events WHERE \(tombstones)") == [["30"]])
        for table in ["events WHERE project_id = 1 AND distinct_id <> 'somebody-else'", "report_users", "erasures"] {
            let rows = try await fixture.rows("SELECT * FROM \(table)").joined().joined(separator: " ")
            for trace in ["canary", "\(Sample.id(77))"] { #expect(!rows.contains(trace), "\(table)") }
        }
        #expect(
            try await fixture.rows("SELECT count(*) FROM events WHERE \(tombstones) AND sequence IS NULL AND sent_at IS NULL") == [["30"]])
        #expect(try await fixture.rows("SELECT count(*) FROM events_with_late") == [["11"]])
        #expect(try await fixture.rows("SELECT count(*) FROM report_users") == [["1"]])
        for number in [1, 2, 3, 31] as [UInt64] {
            let found = try await store.reader.event(EventKey(id: Self.id(number), projectID: 1))
            #expect((found == nil) == (number < 31))
        }

        // I2: neither the same event nor another one comes back under these ids.
        #expect(try await Self.send(1..<31, to: store) == [.duplicate])
        #expect(try await Self.send(1..<31, word: "other", to: store) == [.duplicate])
        #expect(try await Self.send(1..<31, of: "new-user", to: store) == [.duplicate])
        #expect(try await fixture.rows("SELECT count(*) FROM events WHERE \(tombstones)") == [["30"]])
        // Who is erased may come again, and be erased again.
        #expect(try await Self.send(50..<52, to: store) == [.stored])
        let second = try await erasures.add(project: "shop", user: Self.user)
        #expect(try await erasures.perform(second)?.rows == 2)
        #expect(try await erasures.list().map(\.rows) == [30, 2])
        await store.close()
    }

    @Test("Several who erase one user at once, and one who is interrupted, erase each event once", arguments: StoreUnderTest.Kind.allCases)
    func concurrentErasuresCountOnce(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        for start in stride(from: UInt64(1), to: 5_001, by: 1_000) {
            #expect(try await Self.send(start..<start + 1_000, to: store) == [.stored])
        }
        let erasures = Erasures(database: store.sql)
        let asked = try await erasures.add(project: "shop", user: Self.user)
        // Another server, where there can be one.
        let other = kind == .postgres ? try await fixture.openWithMovingClock() : store
        let others = Erasures(database: other.sql)
        let interrupted = Task { try await erasures.perform(asked) { if $0 >= 2_000 { withUnsafeCurrentTask { $0?.cancel() } } } }
        async let first = erasures.perform(asked)
        async let second = others.perform(asked)
        // Each to its end: one that fails must not cut the others off.
        _ = try? await interrupted.value
        _ = try? await first
        _ = try? await second
        _ = try await erasures.perform(asked)
        let done = try await erasures.list().first
        #expect(done?.rows == 5_000 && done?.doneAt != nil)
        #expect(try await fixture.rows("SELECT count(*) FROM kept_events") == [["0"]])
        #expect(try await fixture.rows("SELECT count(*) FROM events") == [["5000"]])
        await store.close()
        if kind == .postgres { await other.close() }
    }

    @Test("An event that was being stored when its user was erased is erased, too; one that is received later is not")
    func uncommittedRowsAreErased() async throws {
        let fixture = try await StoreUnderTest(.postgres)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        let writer = try PostgresConnection(uri: fixture.place)
        try writer.execute("SET application_name = '\(PostgresWriter.applicationName)'; BEGIN")
        func insert(_ number: UInt64) -> String {
            """
            INSERT INTO events (project_id, event_id, bucket, event, distinct_id, time, fingerprint, properties)
            VALUES (1, '\(Sample.id(number))', \(Sample.day), 'paid', '\(Self.user)', now(), 1, '{}')
            """
        }
        try writer.execute(insert(1))
        let erasures = Erasures(database: store.sql)
        let asked = try await erasures.add(project: "shop", user: Self.user)
        let erasing = Task { try await erasures.perform(asked) }
        try await fixture.execute(insert(2))
        try writer.execute("COMMIT")
        #expect(try await erasing.value?.rows == 1)
        #expect(try await fixture.rows("SELECT event_id FROM kept_events") == [["\(Sample.id(2))"]])
        await store.close()
    }

    @Test(
        "With a user go the ids that $identify ties to it alone; one that is another user's as well stays",
        arguments: StoreUnderTest.Kind.allCases)
    func linkedIDsGoWithTheUser(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        func identify(_ number: UInt64, _ user: String, _ former: PropertyValue) -> [UInt8] {
            Sample.event(Sample.id(number), name: "$identify", distinctID: user, properties: ["$anonymous_id": former])
        }
        let links = [
            identify(1, "ada", "phone"), identify(2, "ada", "tablet"), identify(3, "ada", "library"), identify(4, "bob", "library"),
            // Claimed by whoever has the write key: bob has logged in himself.
            identify(5, "ada", "bob"), identify(6, "ada", "ada"), identify(7, "ada", 5), identify(8, "ada", ""),
            identify(9, "ada", .string(String(repeating: "z", count: 300))),
        ]
        let others = (10..<15).map { Sample.event(Sample.id($0), distinctID: $0 < 13 ? "phone" : "library") }
        let group = CommitGroup([try Sample.request(links + others)], horizon: 0)
        _ = try await store.commit(group.storeGroup, writer: 0)
        let erasures = Erasures(database: store.sql)
        let found = try await erasures.links(project: "shop", user: "ada")
        #expect(
            found.map { "\($0.user) \($0.rows) \($0.isShared)" } == [
                "bob 1 true", "library 2 true", "phone 3 false", "tablet 0 false",
            ])
        #expect(try await erasures.links(project: "shop", user: "nobody").isEmpty)

        try await RunningServer.run(on: store) { server in
            func admin(_ body: String) async throws -> String {
                let answer = try await RawHTTP.post(
                    port: server.port, path: "/v1/admin/erasures", headers: ["Authorization": "Bearer \(RunningServer.adminKey)"],
                    body: Array(body.utf8))
                return String(decoding: answer.body, as: UTF8.self)
            }
            let preview = try await admin(#"{"project":"shop","user":"ada","linked":true}"#)
            #expect(
                preview.contains(#"{"user":"bob","events":1,"stays":true}"#)
                    && preview.contains(#"{"user":"phone","events":3,"stays":false}"#))
            _ = try await admin(#"{"project":"shop","user":"ada","linked":true,"yes":true}"#)
            while try await erasures.list().contains(where: { $0.doneAt == nil }) { await Task.yield() }
        }
        let left = try await fixture.rows("SELECT distinct_id, count(*) FROM kept_events GROUP BY 1 ORDER BY 1")
        #expect(left == [["bob", "1"], ["library", "2"]])
    }

    @Test(
        "A blocked user's events are refused at every server, before what was on its way is erased; others are taken, and so is the user again (R68)",
        arguments: StoreUnderTest.Kind.allCases)
    func blockedUserIsRefused(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open(currentTime: { Int64(Date().timeIntervalSince1970 * 1_000) })
        for project in ["shop", "app"] { _ = try await store.projectID(named: project) }
        let erasures = Erasures(database: store.sql)
        #expect(try await Self.send(1..<3, to: store) == [.stored])
        try await RunningServer.run(on: store) { server in
            func send(_ number: UInt64, _ user: String) async throws -> Receipt.Result? {
                let event = Sample.event(Sample.id(number), distinctID: user)
                return try await server.receipt(Array("[".utf8) + event + Array("]".utf8)).results.first
            }
            let erasure = try await erasures.add(project: "shop", user: Self.user, blocks: true)
            // This server has not looked yet, or has.
            let late = try await send(101, Self.user)
            var number: UInt64 = 1_000
            while try await send(number, Self.user)?.reason != "user_blocked" { number += 1 }
            #expect(try await erasures.finished(erasure).rows >= (late == nil ? 3 : 2))
            #expect(try await fixture.rows("SELECT count(*) FROM kept_events") == [["0"]])
            #expect(try await send(101, Self.user)?.outcome == (late == nil ? .duplicate : .rejected), "what was stored is told to stop")
            #expect(try await send(103, Self.user + "2") == nil)
            // This server may forget the first refusals with the user, once it knows that the erasure is done.
            var refusals = ""
            while !refusals.contains("user_blocked") {
                // Another id each time: an erased one is a duplicate, which is no refusal.
                number += 1
                _ = try await send(number, Self.user)
                refusals = String(decoding: try await server.get("/v1/refusals").body, as: UTF8.self)
            }
            #expect(!refusals.contains("\"\(Self.user)\""), "\(refusals)")
            for table in ["blocked_users", "erasures"] {
                let rows = try await fixture.rows("SELECT * FROM \(table)")
                #expect(!rows.isEmpty && !"\(rows)".contains(Self.user))
            }
            func unblock(_ user: String) async throws -> Int {
                let headers = ["Authorization": "Bearer \(RunningServer.adminKey)"]
                return try await RawHTTP.post(
                    port: server.port, path: "/v1/admin/unblock", headers: headers,
                    body: Array(#"{"project":"shop","user":"\#(user)"}"#.utf8)
                ).status
            }
            #expect(try await unblock("nobody") == 404)
            #expect(try await unblock(Self.user) == 200)
            #expect(try await send(104, Self.user) == nil)
        }
    }

    @Test(
        "A removed project leaves nothing but the embedded store's last row, empty; its keys end first; another of its name begins anew; others stay",
        arguments: StoreUnderTest.Kind.allCases)
    func removedProjectLeavesNothing(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        for project in ["shop", "app"] { _ = try await store.projectID(named: project) }
        #expect(try await Self.send(1..<4, project: 2, to: store) == [.stored])
        for part in [1..<800, 800..<1_500] as [Range<UInt64>] { #expect(try await Self.send(part, to: store) == [.stored]) }
        let (erasures, registry) = (
            Erasures(database: store.sql, serversKnow: kind == .postgres ? 10_000 : 20), Registry(database: store.sql)
        )
        _ = try await DayClosing(database: store.sql, zones: [:]).perform()
        let key = try await registry.addKey(.write, project: "shop", now: Sample.now)
        _ = try await registry.addKey(.write, project: "app", now: Sample.now)
        // One that waits, and whose user goes with the project.
        let waiting = try await erasures.add(project: "shop", user: Self.user)

        await #expect(throws: Registry.Problem.self) {
            try await Erasures(database: store.sql, inSettings: ["shop"]).add(project: "shop", user: nil)
        }
        #expect(try await erasures.preview(project: "shop", user: nil).rows == 1_499)
        let removal = try await erasures.add(project: "shop", user: nil)
        #expect(try await registry.contents().key(key.key.id).revokedAt != nil)
        // With a key that was good until a moment ago.
        #expect(try await Self.send(1_500..<1_501, to: store) == [.stored])
        #expect(try await erasures.finished(removal).rows == 1_500)
        await #expect(throws: Registry.Problem.self) { try await erasures.finished(waiting) }

        for table in ["installs", "report_zones", "report_bounds", "report_progress", "keys", "erasures", "projects", "kept_events"] {
            #expect(try await fixture.rows("SELECT count(*) FROM \(table) WHERE project_id = 1") == [["0"]], "\(table)")
        }
        for table in ["report_bounds", "keys", "projects"] {
            #expect(try await fixture.rows("SELECT count(*) FROM \(table) WHERE project_id = 2") != [["0"]], "\(table)")
        }
        #expect(try await fixture.rows("SELECT count(*) FROM events WHERE project_id = 1") == [[kind == .postgres ? "0" : "1"]])
        #expect(try await fixture.rows("SELECT count(*) FROM kept_events WHERE project_id = 2") == [["3"]])
        #expect(try await store.projectID(named: "shop") == 3)
        #expect(try await Self.send(1..<2, project: 3, to: store) == [.stored])
        await store.close()
    }

    @Test(
        "Over HTTP: asked for, seen to be done, and in no answer of any path afterwards (I14); wrong questions are refused",
        arguments: StoreUnderTest.Kind.allCases)
    func erasureOverHTTP(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        for project in ["shop", "app"] { _ = try await store.projectID(named: project) }
        let log = RecordedLog(level: .debug)
        try await RunningServer.run(on: store, logger: log.logger) { server in
            @Sendable func admin(_ body: String?, key: String = RunningServer.adminKey) async throws -> HTTPMessage {
                let headers = ["Authorization": "Bearer \(key)", "Content-Type": "application/json"]
                guard let body else { return try await RawHTTP.get(port: server.port, path: "/v1/admin/erasures", headers: headers) }
                return try await RawHTTP.post(port: server.port, path: "/v1/admin/erasures", headers: headers, body: Array(body.utf8))
            }
            func text(_ answer: HTTPMessage) -> String { String(decoding: answer.body, as: UTF8.self) }
            let events = (1..<6).map { Sample.event(Sample.id($0), name: "canary-name", distinctID: Self.user) }
            let body = EventBatch(envelope: .init(), events: events).encoded()
            #expect(try await server.receipt(body).stored == 5)
            let refused = #"[{"event_id":"\#(Sample.id(9))","event":"canary-name","time":-1,"distinct_id":"\#(Self.user)"}]"#
            #expect(try await server.receipt(refused).rejected == 1)
            #expect(text(try await server.get("/v1/refusals")).contains("canary"))

            for (body, status) in [
                (#"{"project":"shop"}"#, 400), (#"{"project":"shop","user":""}"#, 400), (#"{"project":"nope","user":"u"}"#, 404),
                (#"{"project":"shop","user":"u","yes":"yes"}"#, 400), (#"{"project":"shop","user":"u","linked":1}"#, 400),
            ] { #expect(try await admin(body).status == status, "\(body)") }
            for key in [RunningServer.key, RunningServer.readKey, "nobody"] {
                #expect([401, 403].contains(try await admin(#"{"project":"shop","user":"\#(Self.user)"}"#, key: key).status))
            }
            let preview = try await admin(#"{"project":"shop","user":"\#(Self.user)"}"#)
            #expect(text(preview).contains(#""events":5"#))
            #expect(text(try await admin(nil)) == #"{"erasures":[]}"#)
            let asked = try await admin(#"{"project":"shop","user":"\#(Self.user)","yes":true}"#)
            #expect(asked.status == 202 && text(asked).contains(#""erasure":1,"project":"shop","state":"running""#))
            while !text(try await admin(nil)).contains(#""state":"done""#) { await Task.yield() }
            #expect(text(try await admin(nil)).contains(#""events":5"#))
            while text(try await server.get("/v1/refusals")).contains("canary") { await Task.yield() }
            for path in [
                "/v1/events", "/v1/events/\(Sample.id(1))", "/v1/events?user=\(Self.user)", "/v1/names", "/v1/refusals", "/v1/export",
                "/v1/users?prefix=\(Self.user.prefix(3))", "/v1/reports/daily?from=2026-01-01&to=2026-01-02&basis=all",
                "/v1/reports/breakdown?property=p&from=2026-01-01&to=2026-01-02&basis=all",
            ] {
                let answer = text(try await server.get(path))
                #expect(!answer.contains("canary") && !answer.contains(#""event":"""#), "\(path): \(answer)")
            }
            // An export goes on behind it.
            #expect(try await server.get("/v1/export?after=\(Sample.id(3))").status == 200)
            #expect(!text(try await admin(nil)).contains("canary"))
            #expect(try await server.receipt(body).duplicates == 5)
            #expect(try await server.metrics().contains(#"hapax_events_total{project="shop",outcome="conflict"} 0"#))
        }
        #expect(log.lines.contains { $0.message == "A user was erased" && $0.metadata["events"] == "5" })
        #expect(!"\(log.lines)".contains("canary"))
    }
}
