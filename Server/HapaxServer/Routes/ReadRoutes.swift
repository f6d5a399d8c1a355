import Foundation
import HTTPTypes
import HapaxModel
import Hummingbird

/// What has been stored, and what was refused, for people and their tools: each path is a GET and answers JSON.
@available(macOS 14, *)
struct ReadRoutes: Sendable {
    let questions: Questions
    let live: Live
    let senders: SenderDays

    // MARK: - The key itself

    /// What it is for, so that nobody has to find that out by a refusal.
    func key(_ request: Request) throws -> Response {
        let keys = questions.keys
        let holder = try keys.reader(request.headers[.authorization])
        _ = try QueryParameters(request.uri.query, known: ["project"])
        let own = holder.projectID.map { [keys.projectNamesByID[$0]].compactMap { $0 } }
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("kind", holder.kind.rawValue)
            if holder.kind == .admin {
                writer.member("read_only", holder.isReadOnly)
                writer.member("all_projects", holder.projectID == nil)
            }
            writer.member("projects", list: own ?? keys.projectNames) { writer, name in writer.string(name) }
        }
        var response = Routes.response("application/json", writer.bytes)
        response.headers[.cacheControl] = "no-store"
        return response
    }

    // MARK: - One event

    func event(_ request: Request, id text: String) async throws -> Response {
        let (_, projectID, _) = try questions.accept(request, [])
        // Another vendor's SDK gives texts of its own, from which ids are made.
        let id = EventID(uuidString: text)
        let text = text.removingPercentEncoding ?? text
        guard text.utf8.count <= ServerLimits.parameterBytes else { throw RequestProblem.parameter("id", "is too long") }
        let ids = (id.map { [$0] } ?? []) + (id == nil || id?.version == 8 ? SenderFormat.ids(of: text) : [])
        var writer = JSONWriter()
        for id in ids {
            guard
                let event = try await questions.reading({ () throws(StoreError) in
                    try await questions.store.reader.event(EventKey(id: id, projectID: projectID))
                })
            else { continue }
            writer.object { writer in
                writer.member("state", "stored")
                writer.members(of: event)
            }
            return try questions.answer(writer.bytes, to: projectID)
        }
        let (latest, since) = live.refusals(of: projectID)
        if let refusal = latest.first(where: { $0.eventID.map(ids.contains) ?? false }) {
            writer.object { writer in
                writer.member("state", "refused")
                writer.members(of: refusal)
            }
            return try questions.answer(writer.bytes, to: projectID)
        }
        if let id, id.bucket >= 0, id.bucket < questions.store.horizon {
            throw RequestProblem(.expired, detail: "events of that day are no longer kept")
        }
        throw RequestProblem(
            .notFound,
            detail:
                "no event of this id is stored, and this server has refused none since \(since); ids of SDKs that are one only together with more are found by where=$via.id:ID",
            members: ["ring_since": .string(since.description)])
    }

    // MARK: - Lists

    func events(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(
            request, ["from", "to", "happened_from", "happened_to", "event", "distinct_id", "install_id", "where", "limit", "after"])
        let query = EventQuery(
            projectID: projectID, received: try parameters.span(), happened: try parameters.happened(), name: parameters.text("event"),
            distinctID: parameters.text("distinct_id"),
            installID: try parameters.id("install_id"), limit: try parameters.count("limit", upTo: ServerLimits.pageEvents, default: 100),
            after: try parameters.parse("after", "must be what an answer gave as next") { EventPosition(text: $0) })
        let (page, filter) = try await questions.heavily(
            for: context, of: projectID, in: questions.turns, within: ServerLimits.listRead,
            asking: { () throws(RequestProblem) in
                try parameters.parse(
                    "where", #"must be PROPERTY:VALUE, with quotation marks around a name that has a colon: "a:b":VALUE"#
                ) { PropertyFilter($0) }
            }
        ) { filter, turn throws(StoreError) in
            let keeps = filter.map { filter in { filter.keeps($0) } }
            return (try await questions.store.reader.events(query, in: turn, where: keeps), filter)
        }
        var writer = JSONWriter(capacity: 1_024 + page.events.reduce(0) { $0 + $1.properties.count + 400 })
        writer.object { writer in
            writer.member("events", list: page.events) { writer, event in writer.object { $0.members(of: event) } }
            writer.member("next", page.next?.text)
            writer.member(
                "searched_to", (page.next?.receivedAt ?? Timestamp(unixMicroseconds: query.received.lowerBound))?.description)
            writer.member("query") { writer in
                writer.span(query.received)
                for (name, value) in [
                    (
                        "happened_from",
                        query.happened.lowerBound == 0 ? nil : Timestamp(unixMicroseconds: query.happened.lowerBound)?.description
                    ),
                    ("happened_to", Timestamp(unixMicroseconds: query.happened.upperBound)?.description), ("event", query.name),
                    ("distinct_id", query.distinctID), ("install_id", query.installID?.description), ("where", filter?.text),
                    ("after", query.after?.text),
                ] where value != nil {
                    writer.member(named: name)
                    writer.optional(value)
                }
                writer.member("limit", query.limit)
            }
        }
        return try questions.answer(writer.bytes, to: projectID)
    }

    func users(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(request, ["prefix", "limit"])
        guard let prefix = parameters.text("prefix") else {
            throw RequestProblem.parameter("prefix", "must be what the users' distinct_id begins with")
        }
        let search = UserSearch(
            projectID: projectID, prefix: prefix, limit: try parameters.count("limit", upTo: ServerLimits.foundUsers, default: 20))
        let found = try await questions.heavily(for: context, of: projectID, in: questions.turns, within: ServerLimits.listRead) {
            turn throws(StoreError) in try await search.find(questions.store.sql, in: turn)
        }
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("users", list: found.users) { $0.string($1) }
            writer.member("more", found.isCut)
            writer.member("searched_to", found.searchedTo.map { Timestamp(clampingUnixMilliseconds: $0 * 1_000).description })
        }
        return try questions.answer(writer.bytes, to: projectID)
    }

    func names(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(request, ["from", "to"])
        let received = try parameters.span()
        let summary = try await questions.heavily(for: context, of: projectID, in: questions.turns, within: ServerLimits.heavyRead) {
            turn throws(StoreError) in
            let counts = try await questions.store.reader.countsByName(
                projectID: projectID, received: received, limit: ServerLimits.pageEvents, in: turn)
            let sample = EventQuery(projectID: projectID, received: received, limit: ServerLimits.sampledEvents)
            return NameSummary(counts: counts, sample: try await questions.store.reader.events(sample, in: turn).events)
        }
        var writer = JSONWriter()
        writer.object { writer in
            summary.write(to: &writer)
            writer.member("query") { $0.span(received) }
        }
        return try questions.answer(writer.bytes, to: projectID)
    }

    func senders(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(request, ["from", "to"])
        func day(_ name: String) throws(RequestProblem) -> CalendarDay? {
            try parameters.parse(name, "must be a day, as in 2026-11-25") { CalendarDay($0) }
        }
        let (from, to) = (try day("from"), try day("to"))
        let found = try await questions.heavily(for: context, of: projectID, in: questions.turns, within: ServerLimits.heavyRead) {
            turn throws(StoreError) in try await senders.senders(of: projectID, from: from, to: to, as: .question(turn))
        }
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("senders", list: found) { writer, sender in
                writer.object { writer in
                    writer.member("via", sender.via)
                    writer.member("library", sender.library)
                    writer.member("first_day", sender.firstDay)
                    writer.member("last_day", sender.lastDay)
                    writer.member("received", sender.received)
                    for (name, events) in sender.figures {
                        writer.member(named: name)
                        writer.integer(events)
                    }
                }
            }
        }
        return try questions.answer(writer.bytes, to: projectID)
    }

    func refusals(_ request: Request) throws -> Response {
        let (parameters, projectID, holder) = try questions.accept(request, ["limit", "after"])
        let limit = try parameters.count("limit", upTo: ServerLimits.refusals, default: ServerLimits.refusals)
        let after = try parameters.parse("after", "must be what an answer gave as next") { UInt64($0) }
        let (latest, since) = live.refusals(of: projectID)
        let rest = latest.filter { $0.number < after ?? .max }
        let part = rest.prefix(limit)
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("refusals", list: part) { writer, refusal in writer.object { $0.members(of: refusal) } }
            writer.member("next", part.count < rest.count ? part.last.map { "\($0.number)" } : nil)
            writer.member("since", since.description)
            // An unknown key belongs to no project, so only the admin sees the count; with the public keys a developer on this machine, too.
            if holder.kind == .admin && holder.projectID == nil || questions.keys.holdsDemoKeys {
                writer.member("unknown_keys", live.unknownKeys)
            }
        }
        return try questions.answer(writer.bytes, to: projectID)
    }
}

extension JSONWriter {
    fileprivate mutating func span(_ received: Range<Int64>) {
        member("from", received.lowerBound == 0 ? nil : Timestamp(unixMicroseconds: received.lowerBound)?.description)
        member("to", Timestamp(unixMicroseconds: received.upperBound)?.description)
    }

    /// The members that every answer with a refusal has.
    mutating func members(of refusal: LiveFeed.Refusal) {
        member("at", refusal.at.description)
        member("what", refusal.isRequest ? "request" : "event")
        member("reason", refusal.reason)
        member("detail", refusal.detail)
        if let via = refusal.via { member("via", via) }
        member("event_id", refusal.eventID)
        member("name", refusal.name)
        member("sample")
        text(refusal.sample)
    }
}
