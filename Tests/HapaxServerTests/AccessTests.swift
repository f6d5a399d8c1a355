import Foundation
import HapaxModel
import Logging
import TestSupport
import Testing

@testable import HapaxServer

@Suite("Keys and projects (I14)", .endsWhenItHangs)
struct AccessTests {
    @Test(
        "A key has the form that scanners look for, says its kind, and with any one character changed, lost or added it is known as mistyped"
    )
    func mistypedKeysAreKnown() throws {
        var random = SeededRandom(seed: 1)
        for kind in KeyKind.allCases {
            let key = AccessKey.make(kind, using: &random)
            #expect(key.wholeMatch(of: /hapax_[wsbra]_[0-9A-Za-z]{36}/) != nil && !AccessKey.isMistyped(key))
            #expect(AccessKey.make(kind, using: &random) != key)
            for index in key.indices.dropFirst("hapax_".count) {
                // Another letter for the kind is a mistyped key of that kind.
                let others = key.distance(from: key.startIndex, to: index) == 6 ? "wsrab" : "0Zz"
                for other in others where other != key[index] && key[index] != "_" {
                    #expect(AccessKey.isMistyped(key.replacingCharacters(in: index...index, with: String(other))), "\(key) \(index)")
                }
            }
            #expect(AccessKey.isMistyped(String(key.dropLast())) && AccessKey.isMistyped(key + "0"))
        }
        for key in ["", "demo", "hapax", "hapax_x_1", "HAPAX_W_1"] { #expect(!AccessKey.isMistyped(key)) }
    }

    @Test(
        "Both stores keep projects and keys: made, listed, rotated, revoked; of a key nothing that opens anything",
        arguments: StoreUnderTest.Kind.allCases)
    func registryKeepsKeys(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        let (registry, now) = (Registry(database: store.sql), Sample.now / 1_000 * 1_000)
        // A project that a setting named is one of them.
        #expect(try await store.projectID(named: "app") == 1)
        #expect(try await registry.addProject("shop").id == 2)
        let (write, secret) = try await registry.addKey(.write, project: "shop", name: "iOS", expiresAt: now + 86_400_000, now: now)
        let (admin, other) = try await registry.addKey(.admin, project: nil, now: now)
        let (fresh, third, old) = try await registry.rotateKey(
            write.id, grace: .seconds(3_600), expiresAt: now + 9_000, now: now)
        #expect(try await registry.revokeKey(admin.id, now: now + 1_000).state(at: now) == .revoked)
        #expect(try await registry.revokeKey(admin.id, now: now + 9_000).revokedAt == now + 1_000)
        try await registry.noteUse(of: [fresh.id], on: try #require(CalendarDay("2026-01-02")))
        try await registry.noteUse(of: [fresh.id], on: try #require(CalendarDay("2026-01-01")))
        await store.close()

        let reopened = try await fixture.open()
        let contents = try await Registry(database: reopened.sql).contents()
        #expect(contents.projects.map(\.name) == ["app", "shop"] && Set(contents.projects.map(\.publicID)).count == 2)
        #expect(contents.projects.allSatisfy { $0.publicID.wholeMatch(of: /[0-9a-f]{16}/) != nil && $0.derivedIDs == .any })
        #expect(contents.keys.map(\.id) == [write.id, admin.id, fresh.id] && contents.keys.map(\.kind) == [.write, .admin, .write])
        #expect(contents.keys.map(\.projectID) == [2, nil, 2] && contents.keys.map(\.name) == ["iOS", "", "iOS"])
        #expect(old.expiresAt == now + 3_600_000 && contents.keys.map(\.expiresAt) == [now + 3_600_000, nil, now + 9_000])
        #expect(contents.keys.map(\.lastUsed?.description) == [nil, nil, "2026-01-02"])
        let rows = try await fixture.rows("SELECT * FROM keys").joined().joined(separator: " ")
        for secret in [secret, other, third] {
            #expect(rows.contains(AccessKey.beginning(secret)) && !rows.contains(secret.prefix(16)) && !rows.contains(secret.suffix(20)))
        }
        await reopened.close()
    }

    @Test("What cannot be is refused and changes nothing", arguments: StoreUnderTest.Kind.allCases)
    func impossibleChangesAreRefused(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        let (registry, now) = (Registry(database: store.sql), Sample.now)
        _ = try await registry.addProject("shop")
        let (key, _) = try await registry.addKey(.read, project: "shop", expiresAt: now, now: now)
        func problem(_ body: () async throws -> Void) async -> Registry.Problem? {
            do { try await body() } catch { return error as? Registry.Problem }
            return nil
        }
        #expect(await problem { _ = try await registry.addProject("shop") } == .exists("there is a project of that name"))
        for name in ["", "a,b", "a=b", " a", "a\nb", "a\u{202E}b", "a\u{9B}31m", "a\u{200B}", String(repeating: "x", count: 65)] {
            guard case .invalid("name", _) = await problem({ _ = try await registry.addProject(name) }) else {
                Issue.record("\(name)"); continue
            }
        }
        // Of several who add one at once, one has added it.
        let added = await withTaskGroup(of: Bool.self) { group in
            for _ in 0..<8 { group.addTask { (try? await registry.addProject("race")) != nil } }
            return await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
        }
        #expect(added == 1)
        try await fixture.execute("DELETE FROM projects WHERE name = 'race'")
        let unknown = Registry.Problem.notFound("there is no project of that name; there are: shop")
        #expect(await problem { _ = try await registry.addKey(.write, project: "shoop", now: now) } == unknown)
        #expect(await problem { _ = try await registry.set("shoop", derivedIDs: .server, now: now) } == unknown)
        for (kind, project) in [(KeyKind.write, nil as String?), (.read, nil)] {
            guard case .invalid("project", _) = await problem({ _ = try await registry.addKey(kind, project: project, now: now) }) else {
                Issue.record("\(kind)")
                continue
            }
        }
        #expect(await problem { _ = try await registry.revokeKey(99, now: now) } == .notFound("there is no key with that number"))
        guard case .invalid("id", _) = await problem({ _ = try await registry.rotateKey(key.id, grace: .zero, now: now) }) else {
            Issue.record("expired")
            return
        }
        #expect(try await registry.contents().keys.count == 1)
        await store.close()
    }

    @Test(
        "A thousand keys of two hundred projects are read at once, and each is for its own project", arguments: StoreUnderTest.Kind.allCases
    )
    func manyKeysAreRead(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        let registry = Registry(database: store.sql)
        let rows = (0..<1_000).map {
            "('\(KeyDigest("key \($0)").hex)', '', 'write', \($0 % 200 + 1), '', \(kind == .postgres ? "now()" : "0"))"
        }
        try await fixture.execute(
            "INSERT INTO projects (name, public_id) VALUES \((1...200).map { "('p\($0)', 'id\($0)')" }.joined(separator: ", "))")
        try await fixture.execute(
            "INSERT INTO keys (digest, beginning, kind, project_id, name, created_at) VALUES \(rows.joined(separator: ", "))")
        let keys = Keys(StaticKeys(), registry: registry) { Sample.now }
        try await keys.refresh()
        #expect(keys.projectNames.count == 200)
        for number in 0..<1_000 { #expect(try keys.sender("Bearer key \(number)").projectID == Int32(number % 200 + 1)) }
        // What was used is noted with the next look.
        try await keys.refresh()
        #expect(try await fixture.rows("SELECT count(*) FROM keys WHERE last_used = '2026-01-01'") == [["1000"]])
        await store.close()
    }

    // MARK: - Over HTTP

    /// A project with a key of each kind, beside another one.
    private static func run(
        _ kind: StoreUnderTest.Kind = .sqlite,
        _ body: @Sendable @escaping (RunningServer, [String: String], StoreUnderTest) async throws -> Void
    ) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.open()
        let (registry, now) = (Registry(database: store.sql), Sample.now)
        var keys: [String: String] = [:]
        for project in ["shop", "app"] { _ = try await registry.addProject(project) }
        for kind in KeyKind.allCases {
            keys[kind.rawValue] = try await registry.addKey(
                kind, project: kind == .admin ? nil : "shop", origins: kind == .browser ? ["https://shop.example"] : [], now: now
            ).secret
        }
        keys["expired"] = try await registry.addKey(.admin, project: nil, expiresAt: now - 1_000, now: now).secret
        let revoked = try await registry.addKey(.admin, project: nil, now: now)
        _ = try await registry.revokeKey(revoked.key.id, now: now)
        keys["revoked"] = revoked.secret
        keys["mistyped"] = keys["admin"].map { String($0.dropLast()) + ($0.hasSuffix("0") ? "1" : "0") }
        keys["unknown"] = "nobody's key"
        let made = keys
        try await RunningServer.run(on: store, keys: StaticKeys()) { server in try await body(server, made, fixture) }
    }

    private static func send(
        _ server: RunningServer, _ method: String, _ path: String, key: String, body: String? = nil
    ) async throws -> HTTPMessage {
        let connection = try await RawHTTP(port: server.port)
        let headers = ["Authorization": "Bearer \(key)", "Content-Type": "application/json"]
        try await connection.send(RawHTTP.request(method, path, headers: headers, body: body.map { Array($0.utf8) }))
        return try await connection.answer(to: method)
    }

    @Test("Each of the admin's paths is for a good admin key alone, and every other key is for what its kind may do")
    func keysOpenWhatTheyAreFor() async throws {
        try await Self.run { server, keys, fixture in
            let admin = [
                ("GET", "/v1/admin/projects", nil), ("POST", "/v1/admin/projects", #"{"name":"new"}"#),
                ("PATCH", "/v1/admin/projects/app", #"{"derived_ids":"server"}"#), ("GET", "/v1/admin/keys", nil),
                ("POST", "/v1/admin/keys", #"{"kind":"read","project":"app"}"#), ("POST", "/v1/admin/keys/3/rotate", #"{"grace_days":1}"#),
                ("DELETE", "/v1/admin/keys/3", nil), ("GET", "/v1/store", nil), ("GET", "/metrics", nil),
                ("GET", "/v1/admin/erasures", nil), ("POST", "/v1/admin/erasures", #"{"project":"app","user":"nobody"}"#),
                ("POST", "/v1/admin/unblock", #"{"project":"app","user":"nobody"}"#), ("GET", "/v1/admin/retention", nil),
                ("PATCH", "/v1/admin/retention", #"{"months":99}"#),
            ]
            let event = String(decoding: Sample.event(Sample.id(1)), as: UTF8.self)
            let cases: [(method: String, path: String, body: String?, kinds: Set<String>)] =
                [
                    ("POST", "/v1/events", "[\(event)]", ["write", "server", "browser"]), ("GET", "/v1/events", nil, ["read"]),
                    ("GET", "/v1/events?project=shop", nil, ["admin"]),
                ] + admin.map { ($0.0, $0.1, $0.2, ["admin"]) }
            for (method, path, body, kinds) in cases {
                for (kind, key) in keys.sorted(by: { $0.key < $1.key }) where !kinds.contains(kind) {
                    // A reader who names a project, and an admin who names none, may read and ask wrongly.
                    let mayRead = method == "GET" && path.hasPrefix("/v1/events") && ["read", "admin"].contains(kind)
                    let isBad = ["expired", "revoked", "mistyped", "unknown"].contains(kind)
                    let status = try await Self.send(server, method, path, key: key, body: body).status
                    #expect(status == (isBad ? 401 : mayRead ? 400 : 403), "\(kind): \(method) \(path)")
                }
                #expect(try await Self.send(server, method, path, key: "", body: body).status == 401)
            }
            // Nothing was changed on the way; what is allowed works.
            #expect(try await fixture.rows("SELECT count(*) FROM keys") == [["7"]])
            for (method, path, body, kinds) in cases {
                for kind in kinds.sorted() {
                    let answer = try await Self.send(server, method, path, key: try #require(keys[kind]), body: body)
                    #expect(
                        (200...202).contains(answer.status) || (answer.status == 404 && path.hasSuffix("unblock")),
                        "\(kind): \(method) \(path) \(String(decoding: answer.body, as: UTF8.self))")
                }
            }
            let list = String(
                decoding: try await Self.send(server, "GET", "/v1/admin/keys", key: try #require(keys["admin"])).body, as: UTF8.self)
            for key in keys.values where key.hasPrefix("hapax_") { #expect(!list.contains(key.prefix(16))) }
            // The read key was rotated and revoked by the last two changes.
            #expect(try await Self.send(server, "GET", "/v1/events", key: try #require(keys["read"])).status == 401)
        }
    }

    @Test("A body of the admin's that cannot be used is refused with the member that is wrong")
    func wrongBodiesAreNamed() async throws {
        try await Self.run { server, keys, _ in
            let key = try #require(keys["admin"])
            for (path, body, status, parameter) in [
                ("keys", "", 400, nil), ("keys", "[]", 400, nil), ("keys", "{}", 400, "kind"), ("keys", #"{"kind":7}"#, 400, "kind"),
                ("keys", #"{"kind":"writer"}"#, 400, "kind"), ("keys", #"{"kind":"write"}"#, 400, "project"),
                ("keys", #"{"kind":"write","project":"nope"}"#, 404, nil),
                ("keys", #"{"kind":"read","project":"shop","read_only":true}"#, 400, "read_only"),
                ("keys", #"{"kind":"write","project":"shop","expires":"1d"}"#, 400, "expires"),
                ("keys", #"{"kind":"write","project":"shop","expires_in_days":0}"#, 400, "expires_in_days"),
                ("keys", #"{"kind":"write","project":"shop","expires_in_days":9223372036854775807}"#, 400, "expires_in_days"),
                ("keys", #"{"kind":"write","project":"shop","expires_in_days":1.5}"#, 400, nil),
                ("keys", #"{"kind":"write","project":"shop","expires_in_days":1e400}"#, 400, nil),
                ("keys", #"{"kind":"read","project":"shop","name":"\#(key)"}"#, 400, "name"),
                ("keys/1/rotate", #"{"expires_in_days":0}"#, 400, "expires_in_days"), ("keys/01/rotate", "", 404, nil),
                ("keys/99/rotate", "", 404, nil), ("keys/x/rotate", "", 404, nil),
                ("keys/1/rotate", #"{"grace_days":-1}"#, 400, "grace_days"),
                ("projects/shop", #"{"events_per_second":-1}"#, 400, "events_per_second"), ("projects/nope", "{}", 404, nil),
                ("projects/shop", #"{"time_zone":"PST"}"#, 400, "time_zone"), ("projects", #"{"name":"shop"}"#, 409, nil),
                ("projects", #"{"name":"a,b"}"#, 400, "name"),
            ] {
                let answer = try await Self.send(
                    server, path.hasPrefix("projects/") ? "PATCH" : "POST", "/v1/admin/\(path)", key: key, body: body)
                #expect(answer.status == status && answer.problemCode != nil, "\(path) \(body)")
                if let parameter {
                    #expect(String(decoding: answer.body, as: UTF8.self).contains(#""parameter":"\#(parameter)""#), "\(path) \(body)")
                }
            }
        }
    }

    @Test("Until there is a key everything is answered 503 with the command that makes one; then no restart is needed")
    func firstKeyNeedsNoRestart() async throws {
        let fixture = try await StoreUnderTest(.sqlite)
        let store = try await fixture.open()
        let log = RecordedLog()
        try await RunningServer.run(on: store, keys: StaticKeys(), logger: log.logger) { server in
            for path in ["/v1/events", "/v1/admin/keys", "/metrics"] {
                let answer = try await server.get(path)
                #expect(answer.problemCode == .notSetUp && String(decoding: answer.body, as: UTF8.self).contains("projects add"))
                #expect(answer["Retry-After"] != nil)
            }
            #expect(try await server.get("/health/ready").status == 200)
            let registry = Registry(database: store.sql)
            _ = try await registry.addProject("shop")
            let key = try await registry.addKey(.write, project: "shop", now: Sample.now).secret
            let body = Array("[".utf8) + Sample.event(Sample.id(1)) + Array("]".utf8)
            while try await server.post(body, headers: ["Authorization": "Bearer \(key)"]).status != 200 {}
            #expect(try await server.get("/v1/events", key: key).status == 403)
        }
        #expect(log.lines.contains { $0.message.contains("projects add") })
    }

    @Test("A key that one server revokes is dead at another one, whose stream of it ends; known keys go on while the store is away")
    func revokedKeyIsDeadEverywhere() async throws {
        try await Self.run(.postgres) { server, keys, fixture in
            let (read, admin) = (try #require(keys["read"]), try #require(keys["admin"]))
            let other = try await fixture.open()
            try await RunningServer.run(on: other, keys: StaticKeys()) { second in
                let stream = try await RawHTTP(port: second.port)
                try await stream.send(RawHTTP.request("GET", "/v1/live", headers: ["Authorization": "Bearer \(read)"]))
                #expect(try await second.get("/v1/events", key: read).status == 200)
                #expect(try await Self.send(server, "DELETE", "/v1/admin/keys/3", key: admin).status == 200)
                // At once where it was revoked.
                #expect(try await server.get("/v1/events", key: read).status == 401)
                // Ends by itself: the body is whole.
                #expect(try await stream.answer(to: "GET").status == 200)
                let answer = try await second.get("/v1/events", key: read)
                #expect(answer.status == 401 && String(decoding: answer.body, as: UTF8.self).contains("revoked"))
                // The store does not let go of the keys any more.
                try await fixture.execute("ALTER TABLE keys RENAME TO hidden")
                #expect(try await Self.send(server, "POST", "/v1/admin/keys", key: admin, body: #"{"kind":"admin"}"#).status == 503)
                #expect(try await second.get("/v1/events?project=shop", key: admin).status == 200)
                try await fixture.execute("ALTER TABLE hidden RENAME TO keys")
            }
        }
    }

    @Test(
        "A project that takes derived ids of server keys alone refuses them from a write key, unless they are stored already",
        arguments: [false, true])
    func derivedIDsCanBeGuarded(isGuarded: Bool) async throws {
        try await Self.run { server, keys, _ in
            let (write, secret, admin) = (try #require(keys["write"]), try #require(keys["server"]), try #require(keys["admin"]))
            func outcomes(_ key: String, _ ids: [EventID]) async throws -> [Receipt.Result] {
                let body = Array("[".utf8) + ids.map { Sample.event($0) }.joined(separator: Array(",".utf8)) + Array("]".utf8)
                return try await server.receipt(body, headers: ["Authorization": "Bearer \(key)"]).results
            }
            let (known, new) = (EventID.derived(name: "paid", key: "1"), EventID.derived(name: "paid", key: "2"))
            #expect(try await outcomes(write, [known]).isEmpty)
            if isGuarded {
                _ = try await Self.send(
                    server, "PATCH", "/v1/admin/projects/shop", key: admin, body: #"{"derived_ids":"server","yes":true}"#)
            } else {
                // What would be refused is counted, by event and key.
                _ = try await outcomes(secret, [.derived(name: "paid", key: "3")])
                var list = ""
                while !list.contains(#""derived_ids_with_write_keys":[{"event":"order_paid","key":1,"events":1,"last_day":"2026-01-01"}]"#)
                {
                    list = String(decoding: try await Self.send(server, "GET", "/v1/admin/projects", key: admin).body, as: UTF8.self)
                    try #require(!list.contains(#""events":2"#))
                }
            }
            let results = try await outcomes(write, [known, new, Sample.id(1)])
            #expect(results.first?.outcome == .duplicate && results.count == (isGuarded ? 2 : 1))
            if isGuarded { #expect(results.last?.index == 1 && results.last?.reason == "derived_id_needs_server_key") }
            #expect(try await outcomes(secret, [known, new]).map(\.index) == (isGuarded ? [0] : [0, 1]))
        }
    }

    @Test("A server whose role may not change the store says so, and its keys are noted all the same")
    func servingRoleCannotMakeKeys() async throws {
        let roles = try await TwoRoles()
        let owner = try await roles.open(admin: roles.admin)
        let key = try await Registry(database: owner.sql).addKey(.admin, project: nil, now: Sample.now).secret
        await owner.close()
        let store = try await roles.open(admin: nil)
        try await RunningServer.run(on: store, keys: StaticKeys()) { server in
            let answer = try await Self.send(server, "POST", "/v1/admin/keys", key: key, body: #"{"kind":"admin"}"#)
            #expect(answer.problemCode == .adminRoleMissing)
            #expect(try await Self.send(server, "GET", "/v1/admin/keys", key: key).status == 200)
            let registry = Registry(database: store.sql)
            while try await registry.contents().keys.first?.lastUsed == nil {}
        }
    }
}
