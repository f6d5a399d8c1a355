import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

@Suite("What admins may see and change, and what is noted of it (I14)", .endsWhenItHangs)
struct AdminTests {
    private static func send(
        _ server: RunningServer, _ method: String, _ path: String, key: String, _ body: String? = nil
    ) async throws -> (status: Int, text: String) {
        let connection = try await RawHTTP(port: server.port)
        let headers = ["Authorization": "Bearer \(key)", "Content-Type": "application/json"]
        try await connection.send(RawHTTP.request(method, path, headers: headers, body: body.map { Array($0.utf8) }))
        let answer = try await connection.answer(to: method)
        return (answer.status, String(decoding: answer.body, as: UTF8.self))
    }

    @Test(
        "An admin key that only reads changes nothing, one of a project sees and changes that one alone, and makes no key that may do more")
    func adminKeysMayDoLess() async throws {
        let fixture = try await StoreUnderTest(.sqlite)
        let store = try await fixture.open()
        let (registry, now) = (Registry(database: store.sql), Sample.now)
        for project in ["shop", "app"] { _ = try await registry.addProject(project) }
        let other = try await registry.addKey(.read, project: "app", name: "other's", now: now).key.id
        let keys = [
            try await registry.addKey(.admin, project: nil, isReadOnly: true, now: now).secret,
            try await registry.addKey(.admin, project: "shop", now: now).secret,
            try await registry.addKey(.admin, project: "shop", isReadOnly: true, now: now).secret,
        ]
        let event = String(decoding: Sample.event(Sample.id(1)), as: UTF8.self)
        try await RunningServer.run(on: store, keys: StaticKeys()) { server in
            for (method, path, body, statuses) in [
                ("GET", "/v1/admin/projects", nil, [200, 200, 200]), ("GET", "/v1/admin/keys", nil, [200, 200, 200]),
                ("GET", "/v1/admin/audit", nil, [200, 200, 200]), ("GET", "/v1/admin/audit?project=app", nil, [200, 404, 404]),
                ("GET", "/v1/admin/erasures", nil, [200, 200, 200]), ("GET", "/v1/admin/retention", nil, [200, 200, 200]),
                ("GET", "/v1/store", nil, [200, 403, 403]), ("GET", "/metrics", nil, [200, 403, 403]),
                ("GET", "/v1/events?project=shop", nil, [200, 200, 200]), ("GET", "/v1/events?project=app", nil, [200, 400, 400]),
                ("GET", "/v1/events", nil, [400, 200, 200]), ("POST", "/v1/events", "[\(event)]", [403, 403, 403]),
                ("POST", "/v1/admin/projects", #"{"name":"new"}"#, [403, 403, 403]),
                ("PATCH", "/v1/admin/projects/shop", #"{"events_per_second":9}"#, [403, 200, 403]),
                ("PATCH", "/v1/admin/projects/app", #"{"events_per_second":9}"#, [403, 404, 403]),
                ("PATCH", "/v1/admin/projects/shop", #"{"derived_ids":"server"}"#, [403, 200, 403]),
                ("PATCH", "/v1/admin/projects/shop", #"{"derived_ids":"any"}"#, [403, 200, 403]),
                ("POST", "/v1/admin/keys", #"{"kind":"read","name":"x"}"#, [403, 400, 403]),
                ("POST", "/v1/admin/keys", #"{"kind":"read","project":"shop"}"#, [403, 201, 403]),
                ("POST", "/v1/admin/keys", #"{"kind":"admin","project":"shop"}"#, [403, 201, 403]),
                ("POST", "/v1/admin/keys", #"{"kind":"admin"}"#, [403, 403, 403]),
                ("POST", "/v1/admin/keys", #"{"kind":"read","project":"app"}"#, [403, 404, 403]),
                ("POST", "/v1/admin/keys/\(other)/rotate", nil, [403, 404, 403]),
                ("DELETE", "/v1/admin/keys/\(other)", nil, [403, 404, 403]), ("DELETE", "/v1/admin/keys/2", nil, [403, 404, 403]),
                // A trial changes nothing.
                ("POST", "/v1/admin/erasures", #"{"project":"shop","user":"u"}"#, [200, 200, 200]),
                ("POST", "/v1/admin/erasures", #"{"project":"app","user":"u"}"#, [200, 404, 404]),
                ("POST", "/v1/admin/erasures", #"{"project":"shop","user":"u","yes":true}"#, [403, 202, 403]),
                ("POST", "/v1/admin/losses/accept", #"{"project":"shop"}"#, [200, 200, 200]),
                ("POST", "/v1/admin/projects/shop/remove", nil, [200, 403, 403]),
                ("PATCH", "/v1/admin/retention", #"{"months":99}"#, [200, 403, 403]),
                ("POST", "/v1/admin/clock/accept", nil, [403, 403, 403]),
            ] as [(String, String, String?, [Int])] {
                for (number, status) in statuses.enumerated() {
                    let answer = try await Self.send(server, method, path, key: keys[number], body)
                    #expect(answer.status == status, "\(number): \(method) \(path) \(answer.text)")
                    if number > 0, method == "GET", answer.status == 200 {
                        #expect(!answer.text.contains("app\"") && !answer.text.contains("other's"), "\(path) \(answer.text)")
                    }
                }
            }
            #expect(
                try await Self.send(server, "GET", "/v1/key", key: keys[2]).text.contains(
                    #""read_only":true,"all_projects":false,"projects":["shop"]"#))
        }
    }

    @Test(
        "What was changed is noted with the change, by whom, through both doors, without a key or a user; what is older than 400 days goes",
        arguments: StoreUnderTest.Kind.allCases)
    func changesAreNoted(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        let now = Sample.now
        func admin(_ caller: AdminCaller) -> Admin { Admin(database: store.sql, store: store, now: now, caller: caller) }
        let old = AuditLog.Entry(id: 0, at: now, actor: "long ago", verb: "keys add", detail: "")
        _ = try await store.sql.change([AuditLog(database: store.sql).noting(old)], as: .own)
        let past = now - 401 * 86_400_000
        try await fixture.execute("UPDATE audit SET at = \(kind == .postgres ? "to_timestamp(\(past / 1_000))" : "\(past)")")
        let operators = admin(AdminCaller(name: "root on host"))
        _ = try await operators.perform(.addProject(name: "shop", timeZone: "Asia/Tokyo"), saysYes: false)
        guard case .key(let key, let secret?, _) = try await operators.perform(.addKey(.admin, name: "ops"), saysYes: false) else {
            Issue.record("no key")
            return
        }
        try await RunningServer.run(on: store, keys: StaticKeys()) { server in
            for (method, path, body) in [
                ("POST", "keys", #"{"kind":"write","project":"shop","name":"iOS"}"#), ("POST", "keys/2/rotate", ""),
                ("DELETE", "keys/2", ""),
                ("POST", "erasures", #"{"project":"shop","user":"canary","block":true,"yes":true}"#),
                ("POST", "unblock", #"{"project":"shop","user":"canary"}"#), ("PATCH", "retention", #"{"months":99,"yes":true}"#),
                ("PATCH", "projects/shop", #"{"events_per_second":9,"derived_ids":"server"}"#), ("POST", "clock/accept", ""),
                // What is refused, and what is only tried, changes nothing.
                ("POST", "keys", #"{"kind":"write","project":"nope"}"#), ("POST", "projects", #"{"name":"shop"}"#),
                ("POST", "unblock", #"{"project":"shop","user":"canary"}"#), ("DELETE", "keys/2", ""),
                ("PATCH", "retention", #"{"months":99,"yes":true}"#),
                ("PATCH", "projects/shop", #"{"events_per_second":9,"derived_ids":"server"}"#), ("PATCH", "projects/shop", "{}"),
                ("POST", "erasures", #"{"project":"shop","user":"canary"}"#), ("POST", "losses/accept", #"{"project":"shop","yes":true}"#),
            ] { _ = try await Self.send(server, method, "/v1/admin/\(path)", key: secret, body) }
            let told = try await Self.send(server, "GET", "/v1/admin/audit?before=4", key: secret).text
            #expect(told.contains(#""by":"root on host","key":null,"verb":"keys add","project":null,"detail":"admin, ops""#), "\(told)")
        }
        // The server has closed its store. A change that fails leaves no entry, and of several at once that which was made.
        let reopened = try await fixture.open()
        let others = Admin(database: reopened.sql, store: reopened, now: now, caller: AdminCaller(name: "several"))
        let made = await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<8 { group.addTask { (try? await others.perform(.addProject(name: "race"), saysYes: false)) != nil } }
            return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
        }
        #expect(made == 1)
        let failing = AuditedStore(reopened.sql, AuditLog.Entry(id: 0, at: now, actor: "nobody", verb: "keys add", detail: ""))
        await #expect(throws: StoreError.self) { try await failing.change(["UPDATE keys SET nothing = 1"], as: .owner) }
        let by = "key \(key.id) (ops)"
        #expect(
            try await AuditLog(database: reopened.sql).entries().reversed().map {
                "\($0.actor): \($0.verb) [\($0.project ?? "")] \($0.detail)"
            } == [
                "root on host: projects add [shop] Asia/Tokyo", "root on host: keys add [] admin, ops", "\(by): keys add [shop] write, iOS",
                "\(by): keys rotate [shop] key 2", "\(by): keys revoke [shop] key 2", "\(by): erase [shop] block",
                "\(by): erase --unblock [shop] ",
                "\(by): retention set [] 99 months", "\(by): projects set [shop] derived ids: server, events a second: 9",
                "\(by): clock accept [] ", "several: projects add [race] ",
            ])
        let rows = try await fixture.rows("SELECT * FROM audit").joined().joined(separator: " ")
        #expect(!rows.contains("canary") && !rows.contains("hapax_"))
        await reopened.close()
    }

    @Test("A trial that takes long keeps other trials waiting, and is refused to them in time; a limit is set meanwhile")
    func trialsTakeTurns() async throws {
        let fixture = try await StoreUnderTest(.postgres)
        let store = try await fixture.open()
        for project in ["shop", "app"] { _ = try await store.projectID(named: project) }
        try await RunningServer.run(on: store) { server in
            let holder = try PostgresConnection(uri: fixture.place)
            try holder.execute("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            @Sendable func send(_ method: String, _ path: String, _ body: String) async throws -> Int {
                try await Self.send(server, method, "/v1/admin/\(path)", key: RunningServer.adminKey, body).status
            }
            async let first = send("POST", "erasures", #"{"project":"shop","user":"u"}"#)
            let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'BEGIN%LOCK TABLE events%'"
            while try await fixture.rows(waiting).isEmpty {}
            #expect(try await send("POST", "erasures", #"{"project":"app","user":"u"}"#) == 503)
            #expect(try await send("PATCH", "projects/app", #"{"events_per_second":9}"#) == 200)
            try holder.execute("ROLLBACK")
            #expect(try await first == 200)
            #expect(try await send("POST", "erasures", #"{"project":"app","user":"u"}"#) == 200)
        }
    }

    @Test("A token that senders have already is a key, if it is public and long enough, once", arguments: StoreUnderTest.Kind.allCases)
    func tokensMayBeKeys(kind: StoreUnderTest.Kind) async throws {
        let place = try await StoreUnderTest(kind)
        let store = try await place.open()
        _ = try await Registry(database: store.sql).addProject("shop")
        try await RunningServer.run(on: store) { server in
            func add(_ members: String) async throws -> (status: Int, text: String) {
                try await Self.send(
                    server, "POST", "/v1/admin/keys", key: RunningServer.adminKey, #"{"project":"shop",\#(members)}"#)
            }
            let made = try await add(#""kind":"write","value":"phc_0123456789abcdef""#)
            #expect(made.status == 201 && made.text.contains(#""beginning":"phc_01""#))
            let sent = try await server.post("[]", headers: ["Authorization": "Bearer phc_0123456789abcdef"])
            #expect(sent.status == 200)
            for (members, status) in [
                (#""kind":"write","value":"phc_0123456789abcdef""#, 409), (#""kind":"write","value":"\#(RunningServer.key)""#, 409),
                (#""kind":"server","value":"phc_0123456789abcdeg""#, 400), (#""kind":"write","value":"short""#, 400),
                (#""kind":"write","value":"hapax_w_0123456789abcdef""#, 400), (#""kind":"write","value":"with blanks in the text""#, 400),
            ] {
                let refused = try await add(members)
                #expect(refused.status == status && !refused.text.contains("phc_"), "\(members) \(refused)")
            }
        }
    }

    @Test("The keys are written anew with their numbers, and that of a key which was removed is not given again")
    func numbersOutliveTheMigration() async throws {
        let fixture = try await StoreUnderTest(.sqlite)
        var store = try await fixture.open()
        _ = try await Registry(database: store.sql).addProject("shop")
        for _ in 0..<3 { _ = try await Registry(database: store.sql).addKey(.write, project: "shop", now: Sample.now) }
        await store.close()
        try await fixture.execute("DELETE FROM keys WHERE key_id > 1")
        try await fixture.execute("DELETE FROM grdb_migrations WHERE identifier IN ('012_audit', '013_origins')")
        try await fixture.execute("ALTER TABLE keys DROP COLUMN origins")
        try await fixture.execute("DROP TABLE audit")
        store = try await fixture.open()
        _ = try await Registry(database: store.sql).addKey(.write, project: "shop", now: Sample.now)
        #expect(try await Registry(database: store.sql).contents().keys.map(\.id) == [1, 4])
        await store.close()
    }
}
