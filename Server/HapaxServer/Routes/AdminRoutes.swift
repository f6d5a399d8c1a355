import Foundation
import HTTPTypes
import HapaxModel
import Hummingbird

/// `/v1/admin/…`: projects, keys, retention, erasures and what was changed, for who has an admin key. Bodies and answers are JSON; what is done is
/// ``Admin``'s.
@available(macOS 14, *)
struct AdminRoutes: Sendable {
    let keys: Keys
    let store: any EventStore
    let settings: Admin.Settings
    /// The keys of the settings, which are listed, too.
    let fixed: StaticKeys
    let failures: FailureLog
    let searches = Turns.searches()
    /// The wall clock in Unix milliseconds.
    let currentTime: @Sendable () -> Int64

    // MARK: - Seeing

    func projects(_ request: Request) async throws -> Response {
        try await answer(request) { admin, _ in
            let contents = try await admin.contents()
            var derived: [Int32: [Registry.DerivedEvents]] = [:]
            for project in contents.projects { derived[project.id] = try await admin.derivedEvents(of: project) }
            return { [derived] writer in writer.members(ofProjects: contents, derived) }
        }
    }

    func keys(_ request: Request) async throws -> Response {
        try await answer(request) { admin, _ in
            let contents = try await admin.contents()
            // Those of the settings are for all projects to see.
            let fixed =
                admin.caller.projectID == nil
                ? fixed.holders.values.sorted { ($0.kind.rawValue, $0.projectID ?? 0) < ($1.kind.rawValue, $1.projectID ?? 0) } : []
            return { writer in
                writer.member("keys", list: contents.keys) { writer, key in
                    writer.object { $0.members(of: key, in: contents, now: admin.now) }
                }
                writer.member("static_keys", list: fixed) { writer, holder in
                    writer.object { writer in
                        writer.member("kind", holder.kind.rawValue)
                        writer.member("project", contents.projects.first { $0.id == holder.projectID }?.name)
                    }
                }
            }
        }
    }

    func erasures(_ request: Request) async throws -> Response {
        try await answer(request, known: ["after"]) { admin, parameters in
            let after = try parameters.parse("after", "must be the number of an erasure") { Int32($0) }
            let (list, contents) = (try await admin.erasures(after: after ?? 0), try await admin.contents())
            return { writer in
                writer.member("erasures", list: list) { writer, erasure in writer.object { $0.members(of: erasure, in: contents) } }
                if list.count == ServerLimits.erasures, let last = list.last { writer.member("next", last.id) }
            }
        }
    }

    func retention(_ request: Request) async throws -> Response {
        try await answer(request) { admin, _ in
            let state = try await admin.retention()
            return { $0.members(of: state) }
        }
    }

    func audit(_ request: Request) async throws -> Response {
        try await answer(request, known: ["before", "project"]) { admin, parameters in
            let before = try parameters.parse("before", "must be the number of an entry") { Int64($0) }
            let entries = try await admin.audit(before: before, project: parameters.text("project"))
            return { writer in
                writer.members(of: entries)
                if entries.count == ServerLimits.auditEntries, let last = entries.last { writer.member("next", last.id) }
            }
        }
    }

    // MARK: - Changing

    func addProject(_ request: Request) async throws -> Response {
        try await perform(request, ["name", "time_zone"]) { body in
            .addProject(name: try body.needed("name", body.text), timeZone: try body.text("time_zone"))
        }
    }

    func setProject(_ request: Request, name: String) async throws -> Response {
        try await perform(request, ["derived_ids", "events_per_second", "time_zone"], isTriedFirst: true) { body in
            let derivedIDs = try body.text("derived_ids").map { text in
                guard let derivedIDs = Registry.DerivedIDs(rawValue: text) else {
                    throw Registry.Problem.invalid(parameter: "derived_ids", "must be any or server")
                }
                return derivedIDs
            }
            return .setProject(
                name: name.removingPercentEncoding ?? name, derivedIDs: derivedIDs,
                eventsPerSecond: try body.integer("events_per_second").map { Int($0) }, timeZone: try body.text("time_zone"))
        }
    }

    func removeProject(_ request: Request, name: String) async throws -> Response {
        try await perform(request, [], mayBeEmpty: true, isTriedFirst: true) { _ in
            .removeProject(name: name.removingPercentEncoding ?? name)
        }
    }

    func addKey(_ request: Request) async throws -> Response {
        try await perform(request, ["kind", "project", "name", "read_only", "origins", "value", "expires_in_days"]) { body in
            guard let kind = KeyKind(rawValue: try body.needed("kind", body.text)) else {
                throw Registry.Problem.invalid(parameter: "kind", "must be write, server, browser, read or admin")
            }
            return .addKey(
                kind, project: try body.text("project"), name: try body.text("name") ?? "", isReadOnly: try body.flag("read_only"),
                origins: try body.texts("origins") ?? [], value: try body.text("value"),
                lasts: try body.days("expires_in_days", from: 1))
        }
    }

    func setKey(_ request: Request, id: String) async throws -> Response {
        try await perform(request, ["origins"]) { body in
            .setKey(try Self.number(id), origins: try body.needed("origins", body.texts))
        }
    }

    func rotateKey(_ request: Request, id: String) async throws -> Response {
        try await perform(request, ["grace_days", "expires_in_days"], mayBeEmpty: true) { body in
            .rotateKey(
                try Self.number(id), grace: try body.days("grace_days", from: 0), lasts: try body.days("expires_in_days", from: 1))
        }
    }

    func revokeKey(_ request: Request, id: String) async throws -> Response {
        try await perform(request, [], mayBeEmpty: true) { _ in .revokeKey(try Self.number(id)) }
    }

    /// Not a path or a parameter: those are in the logs of proxies.
    func erase(_ request: Request) async throws -> Response {
        try await perform(request, ["project", "user", "linked", "block"], isTriedFirst: true) { body in
            .erase(
                project: try body.needed("project", body.text), user: try body.needed("user", body.text), linked: try body.flag("linked"),
                blocks: try body.flag("block"))
        }
    }

    func unblock(_ request: Request) async throws -> Response {
        try await perform(request, ["project", "user"]) { body in
            .unblock(project: try body.needed("project", body.text), user: try body.needed("user", body.text))
        }
    }

    func acceptLosses(_ request: Request) async throws -> Response {
        try await perform(request, ["project", "install"], isTriedFirst: true) { body in
            .acceptLosses(project: try body.needed("project", body.text), install: try body.text("install"))
        }
    }

    func setRetention(_ request: Request) async throws -> Response {
        try await perform(request, ["months"], isTriedFirst: true) { body in
            .setRetention(months: Int(clamping: try body.needed("months", body.integer)))
        }
    }

    func acceptClock(_ request: Request) async throws -> Response {
        try await perform(request, [], mayBeEmpty: true) { _ in .acceptClock }
    }

    private static func number(_ id: String) throws -> Int32 {
        guard let number = Int32(id), "\(number)" == id else { throw Registry.Problem.notFound("there is no key with that number") }
        return number
    }

    // MARK: - Bodies and answers

    /// What was changed holds at this server when it is answered.
    private func perform(
        _ request: Request, _ known: Set<String>, mayBeEmpty: Bool = false, isTriedFirst: Bool = false,
        _ verb: (AdminBody) throws -> AdminVerb
    ) async throws -> Response {
        var status = HTTPResponse.Status.ok
        var response = try await answer(request) { admin, _ in
            let body = try await AdminBody(request, isTriedFirst ? known.union(["yes"]) : known, mayBeEmpty: mayBeEmpty)
            let verb = try verb(body)
            let saysYes = try isTriedFirst && body.flag("yes")
            func answer() async throws -> AdminAnswer { try await admin.perform(verb, saysYes: saysYes) }
            // A limit that is set in a hurry waits for no search.
            let answer = try await verb.searches(saysYes: saysYes) ? inTurn(admin, answer) : answer()
            switch answer {
            case .key(_, .some, _): status = .created
            case .erasing: status = .accepted
            case .project: if case .addProject = verb { status = .created }
            default: break
            }
            let contents = try await admin.contents()
            try await keys.refresh()
            return { $0.members(of: answer, in: contents, now: admin.now) }
        }
        response.status = status
        return response
    }

    /// What searches takes as long as there are rows: one at a time, in turns by project.
    private func inTurn(_ admin: Admin, _ work: () async throws -> AdminAnswer) async throws -> AdminAnswer {
        // The turn's errors are refusals only.
        let result = try await searches.run(admin.caller.projectID ?? 0) { (_) throws(RequestProblem) -> Result<AdminAnswer, any Error> in
            do { return .success(try await work()) } catch { return .failure(error) }
        }
        return try result.get()
    }

    /// Checks the key first, so that a client without one learns nothing.
    private func answer(
        _ request: Request, known: Set<String> = [],
        _ work: (Admin, QueryParameters) async throws -> (inout JSONWriter) -> Void
    ) async throws -> Response {
        let holder = try keys.admin(request.headers[.authorization])
        let parameters = try QueryParameters(request.uri.query, known: known)
        let admin = Admin(
            database: store.sql, store: store, settings: settings, patience: ServerLimits.adminWork, now: currentTime(),
            caller: AdminCaller(keyID: holder.keyID, projectID: holder.projectID, isReadOnly: holder.isReadOnly))
        var writer = JSONWriter()
        do {
            writer.object(try await work(admin, parameters))
            failures.succeeded()
        } catch let problem as Registry.Problem {
            switch problem {
            case .notFound(let text): throw RequestProblem(.notFound, detail: text)
            case .exists(let text): throw RequestProblem(.exists, detail: text)
            case .notAllowed(let text): throw RequestProblem(.wrongKeyKind, detail: text)
            case .invalid(let parameter, let text): throw RequestProblem.parameter(parameter, text)
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
        response.headers[.cacheControl] = "no-store"
        return response
    }
}

/// The JSON object of an admin's request.
private struct AdminBody {
    private var members: [String: PropertyValue] = [:]

    /// - Parameter known: A member of another name is refused: what is misspelt would be ignored.
    init(_ request: Request, _ known: Set<String>, mayBeEmpty: Bool) async throws {
        let bytes = try RequestBodyReader.unpacked(try await RequestBodyReader.read(request))
        if bytes.isEmpty {
            guard !mayBeEmpty else { return }
            throw RequestProblem(.malformed, detail: "the body is empty; it must be a JSON object")
        }
        // The reason would add nothing for the one who wrote it.
        guard let value = try? PropertyValue(json: String(decoding: bytes, as: UTF8.self)) else {
            throw RequestProblem(.malformed, detail: "the body is not JSON, is longer than 32 KiB, or holds a number that is too large")
        }
        guard case .object(let members) = value else { throw RequestProblem(.malformed, detail: "the body must be a JSON object") }
        let names = PropertyLookup.names(in: bytes[...]).map { String(decoding: $0, as: UTF8.self) }
        if let stranger = names.filter({ !known.contains($0) }).min() {
            let list = known.isEmpty ? "nothing is known here" : "known here: \(known.sorted().joined(separator: ", "))"
            throw Registry.Problem.invalid(parameter: stranger, "is not known; \(list)")
        }
        // Readers differ in which one counts.
        if let twice = known.sorted().first(where: { name in names.count { $0 == name } > 1 }) {
            throw Registry.Problem.invalid(parameter: twice, "is given twice")
        }
        self.members = members
    }

    func text(_ name: String) throws -> String? {
        switch members[name] {
        case .string(let text): text
        case nil, .null: nil
        default: throw Registry.Problem.invalid(parameter: name, "must be a text")
        }
    }

    func texts(_ name: String) throws -> [String]? {
        switch members[name] {
        case .array(let values):
            try values.map { value in
                guard case .string(let text) = value else { throw Registry.Problem.invalid(parameter: name, "must be a list of texts") }
                return text
            }
        case nil, .null: nil
        default: throw Registry.Problem.invalid(parameter: name, "must be a list of texts")
        }
    }

    func integer(_ name: String) throws -> Int64? {
        switch members[name] {
        case .integer(let number): number
        case nil, .null: nil
        default: throw Registry.Problem.invalid(parameter: name, "must be a whole number")
        }
    }

    /// False unless it is given.
    func flag(_ name: String) throws -> Bool {
        switch members[name] {
        case .bool(let value): value
        case nil, .null: false
        default: throw Registry.Problem.invalid(parameter: name, "must be true or false")
        }
    }

    func days(_ name: String, from least: Int64) throws -> Duration? {
        guard let days = try integer(name) else { return nil }
        guard (least...36_500).contains(days) else {
            throw Registry.Problem.invalid(parameter: name, "must be a number of days from \(least) to 36500")
        }
        return .seconds(days * 86_400)
    }

    func needed<Value>(_ name: String, _ member: (String) throws -> Value?) throws -> Value {
        guard let value = try member(name) else { throw Registry.Problem.invalid(parameter: name, "is missing") }
        return value
    }
}
