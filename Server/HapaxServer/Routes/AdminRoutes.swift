import Foundation
import HTTPTypes
import HapaxModel
import Hummingbird

/// `/v1/admin/…`: projects, keys, retention and erasures, for who has an admin key. Bodies and answers are JSON; ``AccessCommands`` does the same on the store.
@available(macOS 14, *)
struct AdminRoutes: Sendable {
    let keys: Keys
    let registry: Registry
    let erasures: Erasures
    let retention: Retention
    let losses: Losses
    /// The keys of the settings, which are listed, too.
    let fixed: StaticKeys
    let failures: FailureLog
    /// The wall clock in Unix milliseconds.
    let currentTime: @Sendable () -> Int64

    // MARK: - Projects

    func projects(_ request: Request) async throws -> Response {
        try await answer(request) {
            let contents = try await registry.contents()
            var derived: [Int32: [Registry.DerivedEvents]] = [:]
            for project in contents.projects { derived[project.id] = try await registry.derivedEvents(of: project, now: currentTime()) }
            return { [derived] in
                $0.member("projects", list: contents.projects) { writer, project in
                    writer.object { writer in
                        writer.members(of: project)
                        writer.member("blocked_users", contents.blocked[project.id]?.count ?? 0)
                        writer.member("derived_ids_with_write_keys", list: derived[project.id] ?? []) { writer, events in
                            writer.object { writer in
                                writer.member("event", events.name)
                                writer.member("key", events.keyID)
                                writer.member("events", events.events)
                                writer.member("last_day", events.lastDay)
                            }
                        }
                    }
                }
            }
        }
    }

    func addProject(_ request: Request) async throws -> Response {
        try await answer(request, .created) {
            let body = try await Self.body(request, AddedProject.self, ["name", "time_zone"])
            let project = try await registry.addProject(body.name, timeZone: body.time_zone)
            return { $0.members(of: project) }
        }
    }

    func setProject(_ request: Request, name: String) async throws -> Response {
        try await answer(request) {
            let body = try await Self.body(request, ChangedProject.self, ["derived_ids", "events_per_second", "time_zone"])
            let name = name.removingPercentEncoding ?? name
            let derivedIDs = try body.derived_ids.map { text in
                guard let derivedIDs = Registry.DerivedIDs(rawValue: text) else {
                    throw Registry.Problem.invalid(parameter: "derived_ids", "must be any or server")
                }
                return derivedIDs
            }
            let project = try await registry.set(
                name, derivedIDs: derivedIDs, eventsPerSecond: body.events_per_second, timeZone: body.time_zone, now: currentTime())
            return { $0.members(of: project) }
        }
    }

    /// Unlike a body of DELETE, that of POST reaches the server through every proxy: a dry run must never be taken for the other.
    func removeProject(_ request: Request, name: String) async throws -> Response {
        let name = name.removingPercentEncoding ?? name
        return try await answerErasure(request) {
            let body = try await Self.body(request, RemovedProject.self, ["dry_run"], mayBeEmpty: true)
            if body?.dry_run == true { return ([], try await erasures.preview(project: name, user: nil), []) }
            return ([try await erasures.add(project: name, user: nil)], nil, [])
        }
    }

    // MARK: - Keys

    func keys(_ request: Request) async throws -> Response {
        try await answer(request) {
            let contents = try await registry.contents()
            let now = currentTime()
            let fixed = fixed.holders.values.sorted { ($0.kind.rawValue, $0.projectID ?? 0) < ($1.kind.rawValue, $1.projectID ?? 0) }
            return { writer in
                writer.member("keys", list: contents.keys) { writer, key in writer.object { $0.members(of: key, in: contents, now: now) } }
                writer.member("static_keys", list: fixed) { writer, holder in
                    writer.object { writer in
                        writer.member("kind", holder.kind.rawValue)
                        writer.member("project", contents.projects.first { $0.id == holder.projectID }?.name)
                    }
                }
            }
        }
    }

    func addKey(_ request: Request) async throws -> Response {
        try await answer(request, .created) {
            let body = try await Self.body(request, AddedKey.self, ["kind", "project", "name", "expires_in_days"])
            guard let kind = KeyKind(rawValue: body.kind) else {
                throw Registry.Problem.invalid(parameter: "kind", "must be write, server, read or admin")
            }
            let now = currentTime()
            let (key, secret) = try await registry.addKey(
                kind, project: body.project, name: body.name ?? "", expiresAt: try Self.end(body.expires_in_days, now), now: now)
            let contents = try await registry.contents()
            return { writer in
                writer.member("key", secret)
                writer.members(of: key, in: contents, now: now)
            }
        }
    }

    func revokeKey(_ request: Request, id: String) async throws -> Response {
        try await answer(request) {
            let now = currentTime()
            let key = try await registry.revokeKey(try Self.number(id), now: now)
            let contents = try await registry.contents()
            return { $0.members(of: key, in: contents, now: now) }
        }
    }

    func rotateKey(_ request: Request, id: String) async throws -> Response {
        try await answer(request, .created) {
            let body = try await Self.body(request, RotatedKey.self, ["grace_days", "expires_in_days"], mayBeEmpty: true)
            let now = currentTime()
            let grace = try Self.days(body?.grace_days ?? AccessCommands.usualGraceDays, "grace_days", from: 0)
            let (key, secret, old) = try await registry.rotateKey(
                try Self.number(id), grace: .seconds(grace * 86_400), expiresAt: try Self.end(body?.expires_in_days, now), now: now)
            let contents = try await registry.contents()
            return { writer in
                writer.member("key", secret)
                writer.members(of: key, in: contents, now: now)
                writer.member("replaces", object: { $0.members(of: old, in: contents, now: now) })
            }
        }
    }

    // MARK: - Erasures

    func erasures(_ request: Request) async throws -> Response {
        try await answer(request, known: ["after"]) {
            let parameters = try QueryParameters(request.uri.query, known: ["after"])
            let after = try parameters.parse("after", "must be the number of an erasure") { Int32($0) }
            let (list, contents) = (try await erasures.list(after: after ?? 0), try await registry.contents())
            return { writer in
                writer.member("erasures", list: list) { writer, erasure in writer.object { $0.members(of: erasure, in: contents) } }
                if list.count == ServerLimits.erasures, let last = list.last { writer.member("next", last.id) }
            }
        }
    }

    /// Not a path or a parameter: those are in the logs of proxies.
    func erase(_ request: Request) async throws -> Response {
        try await answerErasure(request) {
            let body = try await Self.body(request, AskedErasure.self, ["project", "user", "linked", "block", "dry_run"])
            let links = body.linked == true ? try await erasures.links(project: body.project, user: body.user) : []
            if body.dry_run == true { return ([], try await erasures.preview(project: body.project, user: body.user), links) }
            var begun: [Erasures.Erasure] = []
            for user in links.filter({ !$0.isShared }).map(\.user) + [body.user] {
                begun.append(try await erasures.add(project: body.project, user: user, blocks: body.block == true))
            }
            return (begun, nil, links)
        }
    }

    func unblock(_ request: Request) async throws -> Response {
        try await answer(request) {
            let body = try await Self.body(request, UnblockedUser.self, ["project", "user"])
            try await erasures.unblock(project: body.project, user: body.user)
            return { $0.member("project", body.project) }
        }
    }

    private func answerErasure(
        _ request: Request, _ work: () async throws -> (begun: [Erasures.Erasure], preview: Erasures.Preview?, links: [Erasures.Link])
    ) async throws -> Response {
        var isBegun = false
        var response = try await answer(request) {
            let (begun, preview, links) = try await work()
            guard let erasure = begun.last else {
                return { writer in
                    writer.member("events", preview?.rows)
                    writer.member("first_received_at", preview?.first.map { Timestamp(clampingUnixMilliseconds: $0).description })
                    writer.member("last_received_at", preview?.last.map { Timestamp(clampingUnixMilliseconds: $0).description })
                    writer.member("linked", list: links) { writer, link in
                        writer.object { writer in
                            writer.member("user", link.user)
                            writer.member("events", link.rows)
                            writer.member("stays", link.isShared)
                        }
                    }
                }
            }
            isBegun = true
            let contents = try await registry.contents()
            return { writer in
                writer.members(of: erasure, in: contents)
                writer.member("linked", list: begun.dropLast()) { writer, erasure in writer.integer(erasure.id) }
            }
        }
        if isBegun { response.status = .accepted }
        return response
    }

    /// Reads as many books as there are, so it takes a turn as questions do.
    func acceptLosses(_ request: Request, in turns: Turns) async throws -> Response {
        try keys.checkAdmin(request.headers[.authorization])
        // The turn's errors are refusals only.
        let result = try await turns.run(0) { (_) throws(RequestProblem) -> Result<Response, any Error> in
            do { return .success(try await acceptLosses(request)) } catch { return .failure(error) }
        }
        return try result.get()
    }

    private func acceptLosses(_ request: Request) async throws -> Response {
        try await answer(request) {
            let body = try await Self.body(request, AcceptedLosses.self, ["project", "install", "dry_run"])
            let install = try body.install.map { text in
                guard let id = EventID(uuidString: text) else { throw Registry.Problem.invalid(parameter: "install", "must be a UUID") }
                return id
            }
            let count = try await losses.accept(project: body.project, install: install, isDryRun: body.dry_run == true)
            return { $0.member("events", count) }
        }
    }

    // MARK: - Retention

    func retention(_ request: Request) async throws -> Response {
        try await answer(request) {
            let state = try await retention.state()
            return { $0.members(of: state) }
        }
    }

    func setRetention(_ request: Request) async throws -> Response {
        try await answer(request) {
            let body = try await Self.body(request, AskedRetention.self, ["months", "dry_run"])
            if body.dry_run == true {
                let preview = try await retention.preview(months: body.months)
                return { $0.members(of: preview) }
            }
            let state = try await retention.set(months: body.months)
            return { $0.members(of: state) }
        }
    }

    // MARK: - Bodies and answers

    private struct AddedProject: Decodable {
        var name: String
        var time_zone: String?
    }
    private struct ChangedProject: Decodable {
        var derived_ids: String?
        var events_per_second: Int?
        var time_zone: String?
    }
    private struct AddedKey: Decodable {
        var kind: String
        var project: String?
        var name: String?
        var expires_in_days: Int64?
    }
    private struct AskedErasure: Decodable {
        var project: String
        var user: String
        var linked: Bool?
        var block: Bool?
        var dry_run: Bool?
    }
    private struct UnblockedUser: Decodable {
        var project: String
        var user: String
    }
    private struct RemovedProject: Decodable { var dry_run: Bool? }
    private struct AcceptedLosses: Decodable {
        var project: String
        var install: String?
        var dry_run: Bool?
    }
    private struct AskedRetention: Decodable {
        var months: Int
        var dry_run: Bool?
    }
    private struct RotatedKey: Decodable {
        var grace_days: Int64?
        var expires_in_days: Int64?
    }

    /// - Parameter known: A member of another name is refused: what is misspelt would be ignored.
    private static func body<Body: Decodable>(_ request: Request, _: Body.Type, _ known: Set<String>) async throws -> Body {
        guard let body = try await body(request, Body.self, known, mayBeEmpty: false) else { throw malformed }
        return body
    }

    private static func body<Body: Decodable>(
        _ request: Request, _: Body.Type, _ known: Set<String>, mayBeEmpty: Bool
    ) async throws -> Body? {
        let bytes = try RequestBodyReader.unpacked(try await RequestBodyReader.read(request))
        if bytes.isEmpty, mayBeEmpty { return nil }
        // Why it is none says nothing more to whoever has written it.
        guard let value = try? PropertyValue(json: String(decoding: bytes, as: UTF8.self)) else {
            throw RequestProblem(.malformed, detail: "the body is not JSON, is longer than 32 KiB, or holds a number that is too large")
        }
        guard case .object = value else { throw malformed }
        let names = PropertyLookup.names(in: bytes[...]).map { String(decoding: $0, as: UTF8.self) }
        if let stranger = names.filter({ !known.contains($0) }).min() {
            throw Registry.Problem.invalid(parameter: stranger, "is not known; known here: \(known.sorted().joined(separator: ", "))")
        }
        // Readers differ in which one counts.
        if let twice = known.sorted().first(where: { name in names.count { $0 == name } > 1 }) {
            throw Registry.Problem.invalid(parameter: twice, "is given twice")
        }
        do {
            return try JSONDecoder().decode(Body.self, from: Data(bytes))
        } catch DecodingError.keyNotFound(let key, _) {
            throw Registry.Problem.invalid(parameter: key.stringValue, "is missing")
        } catch DecodingError.typeMismatch(_, let context), DecodingError.valueNotFound(_, let context) {
            throw Registry.Problem.invalid(parameter: context.codingPath.last?.stringValue ?? "body", "is of another type")
        } catch {
            // Foundation names no member where a number has a fraction.
            throw RequestProblem(.malformed, detail: "a number in the body is no whole number")
        }
    }

    private static let malformed = RequestProblem(.malformed, detail: "the body must be a JSON object")

    private static func end(_ days: Int64?, _ now: Int64) throws -> Int64? {
        try days.map { now + (try Self.days($0, "expires_in_days", from: 1)) * 86_400_000 }
    }

    private static func days(_ days: Int64, _ parameter: String, from least: Int64) throws -> Int64 {
        guard (least...36_500).contains(days) else {
            throw Registry.Problem.invalid(parameter: parameter, "must be a number of days from \(least) to 36500")
        }
        return days
    }

    private static func number(_ id: String) throws -> Int32 {
        guard let number = Int32(id), "\(number)" == id else { throw Registry.Problem.notFound("there is no key with that number") }
        return number
    }

    /// Checks the key first, so that a client without one learns nothing. What was changed holds at this server when it is answered.
    private func answer(
        _ request: Request, _ status: HTTPResponse.Status = .ok, known: Set<String> = [],
        _ work: () async throws -> (inout JSONWriter) -> Void
    ) async throws -> Response {
        try keys.checkAdmin(request.headers[.authorization])
        _ = try QueryParameters(request.uri.query, known: known)
        var writer = JSONWriter()
        do {
            let members = try await work()
            if request.method != .get, request.method != .head { try await keys.refresh() }
            writer.object(members)
        } catch let problem as Registry.Problem {
            switch problem {
            case .notFound(let text): throw RequestProblem(.notFound, detail: text)
            case .exists(let text): throw RequestProblem(.exists, detail: text)
            case .invalid(let parameter, let text): throw QueryParameters.problem(parameter, text)
            }
        } catch StoreError.notPermitted {
            throw RequestProblem(
                .adminRoleMissing,
                detail: "this server's role may not change the store: set HAPAX_STORE_ADMIN, or use the command line of hapax-server")
        } catch StoreError.tooHeavy {
            throw RequestProblem(
                .storeUnavailable,
                detail:
                    "it takes longer than \(ServerLimits.adminWork / .seconds(1)) seconds; the command line of hapax-server has no limit")
        } catch let error as StoreError {
            failures.failed(error)
            throw RequestProblem(.storeUnavailable, detail: "the store does not answer; look whether it was changed, and try again")
        }
        var response = Routes.response("application/json", writer.bytes)
        response.status = status
        response.headers[.cacheControl] = "no-store"
        return response
    }
}

extension JSONWriter {
    mutating func members(of project: Registry.Project) {
        member("project", project.name)
        member("public_id", project.publicID)
        member("derived_ids", project.derivedIDs.rawValue)
        member("events_per_second", project.eventsPerSecond)
        member("time_zone", project.timeZone ?? "UTC")
        member("time_zone_from", project.timeZoneFrom == .first ? nil : project.timeZoneFrom?.description)
    }

    /// Never the user's id.
    mutating func members(of erasure: Erasures.Erasure, in contents: Registry.Contents) {
        member("erasure", erasure.id)
        member("project", contents.projects.first { $0.id == erasure.projectID }?.name)
        member("state", erasure.doneAt == nil ? "running" : "done")
        member("events", erasure.rows)
        member("asked_at", Timestamp(clampingUnixMilliseconds: erasure.askedAt).description)
        member("done_at", erasure.doneAt.map { Timestamp(clampingUnixMilliseconds: $0).description })
    }

    mutating func members(of state: Retention.State) {
        member("months", state.months)
        member("kept_from", state.firstDay)
        member("state", state.cleared < state.horizon ? "removing" : "done")
    }

    mutating func members(of preview: Retention.Preview) {
        member("kept_from", Retention.firstDay(preview.horizon))
        member("would_remove", list: preview.months) { writer, part in
            writer.object { writer in
                writer.member("month", part.month)
                writer.member("events", part.events)
            }
        }
        member("undated_events", preview.undated)
    }

    mutating func members(of key: Registry.Key, in contents: Registry.Contents, now: Int64) {
        member("id", key.id)
        member("beginning", key.beginning)
        member("kind", key.kind.rawValue)
        member("project", contents.projects.first { $0.id == key.projectID }?.name)
        member("name", key.name)
        member("state", key.state(at: now).rawValue)
        member("created_at", Timestamp(clampingUnixMilliseconds: key.createdAt).description)
        member("expires_at", key.expiresAt.map { Timestamp(clampingUnixMilliseconds: $0).description })
        member("revoked_at", key.revokedAt.map { Timestamp(clampingUnixMilliseconds: $0).description })
        member("last_used", key.lastUsed?.description)
    }
}
