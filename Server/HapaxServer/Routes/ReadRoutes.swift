import HTTPTypes
import HapaxModel
import Hummingbird
import Logging

/// What has been stored, and what was refused, for people and their tools: each path is a GET and answers JSON.
@available(macOS 14, *)
struct ReadRoutes: Sendable {
    let keys: Keys
    let store: any EventStore
    let live: Live
    let failures: FailureLog
    let questions = Turns.questions()
    private let answers: Budget

    init(keys: Keys, store: any EventStore, live: Live, limits: ServerLimits, failures: FailureLog) {
        (self.keys, self.store, self.live, self.failures) = (keys, store, live, failures)
        answers = Budget(
            limit: limits.untakenAnswers, limitOfOne: limits.untakenAnswers / 2, what: "answers have not been taken yet")
    }

    // MARK: - One event

    func event(_ request: Request, id text: String) async throws -> Response {
        let (_, projectID, _) = try question(request, [])
        guard let id = EventID(text) else { throw QueryParameters.problem("id", "must be a UUID") }
        var writer = JSONWriter()
        if let event = try await reading({ () throws(StoreError) in try await store.reader.event(EventKey(id: id, projectID: projectID)) })
        {
            writer.object { writer in
                writer.member("state", "stored")
                writer.members(of: event)
            }
            return try answer(writer.bytes, to: projectID)
        }
        let (latest, since) = live.refusals(of: projectID)
        if let refusal = latest.first(where: { $0.eventID == id }) {
            writer.object { writer in
                writer.member("state", "refused")
                writer.members(of: refusal)
            }
            return try answer(writer.bytes, to: projectID)
        }
        if id.bucket >= 0, id.bucket < store.horizon {
            throw RequestProblem(.expired, detail: "events of that day are no longer kept")
        }
        throw RequestProblem(
            .notFound, detail: "no event of this id is stored, and none was refused since ring_since",
            members: ["ring_since": .string(since.description)])
    }

    // MARK: - Lists

    func events(_ request: Request) async throws -> Response {
        let (parameters, projectID, _) = try question(
            request, ["from", "to", "happened_from", "happened_to", "event", "distinct_id", "install_id", "where", "limit", "after"])
        let query = EventQuery(
            projectID: projectID, received: try parameters.span(), happened: try parameters.happened(), name: parameters.text("event"),
            distinctID: parameters.text("distinct_id"),
            installID: try parameters.id("install_id"), limit: try parameters.count("limit", upTo: ServerLimits.pageEvents, default: 100),
            after: try parameters.parse("after", "must be what an answer gave as next") { EventPosition(text: $0) })
        let filter = try parameters.parse(
            "where", #"must be PROPERTY:VALUE, with quotation marks around a name that has a colon: "a:b":VALUE"#
        ) { PropertyFilter($0) }
        let page = try await heavily(of: projectID, in: questions, within: ServerLimits.listRead) { deadline throws(StoreError) in
            try await store.reader.events(query, until: deadline, where: filter.map { filter in { filter.keeps($0) } })
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
        return try answer(writer.bytes, to: projectID)
    }

    func names(_ request: Request) async throws -> Response {
        let (parameters, projectID, _) = try question(request, ["from", "to"])
        let received = try parameters.span()
        let summary = try await heavily(of: projectID, in: questions, within: ServerLimits.heavyRead) { deadline throws(StoreError) in
            let counts = try await store.reader.countsByName(projectID: projectID, received: received, until: deadline)
            let sample = EventQuery(projectID: projectID, received: received, limit: ServerLimits.sampledEvents)
            return NameSummary(counts: counts, sample: try await store.reader.events(sample, until: deadline).events)
        }
        var writer = JSONWriter()
        writer.object { writer in
            summary.write(to: &writer)
            writer.member("query") { $0.span(received) }
        }
        return try answer(writer.bytes, to: projectID)
    }

    func refusals(_ request: Request) throws -> Response {
        let (parameters, projectID, isAdmin) = try question(request, ["limit", "after"])
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
            if isAdmin || keys.holdsDemoKeys { writer.member("unknown_keys", live.unknownKeys) }
        }
        return try answer(writer.bytes, to: projectID)
    }

    // MARK: - Asking

    func question(
        _ request: Request, _ known: Set<String>
    ) throws(RequestProblem) -> (parameters: QueryParameters, projectID: Int32, isAdmin: Bool) {
        // The key is checked first, so that a client without one learns nothing about parameters.
        let holder = try keys.reader(request.headers[.authorization])
        let parameters = try QueryParameters(request.uri.query, known: known.union(["project"]))
        return (parameters, try keys.project(of: holder, named: parameters.text("project")), holder == .admin)
    }

    func heavily<Value>(
        of projectID: Int32, in turns: Turns, within time: Duration, _ body: (ContinuousClock.Instant) async throws(StoreError) -> Value
    ) async throws(RequestProblem) -> Value {
        try await turns.run(projectID) { (_) throws(RequestProblem) in
            let deadline = ContinuousClock.now + time
            return try await reading { () throws(StoreError) in try await body(deadline) }
        }
    }

    func reading<Value>(_ body: () async throws(StoreError) -> Value) async throws(RequestProblem) -> Value {
        do throws(StoreError) {
            let value = try await body()
            failures.succeeded()
            return value
        } catch .tooHeavy {
            throw RequestProblem(.rangeTooLarge, detail: "this takes longer than a question may; ask for a shorter span")
        } catch {
            failures.failed(error)
            throw RequestProblem(.storeUnavailable, detail: "the store cannot be read now")
        }
    }

    /// The answer to a question; its bytes are charged to the project until the client has taken them.
    func answer(_ bytes: [UInt8], to projectID: Int32, type: String = "application/json") throws(RequestProblem) -> Response {
        let charge = try answers.take(bytes.count, of: projectID)
        let body = ResponseBody(contentLength: bytes.count) { writer in
            try await writer.write(inPieces: bytes)
            withExtendedLifetime(charge) {}
            try await writer.finish(nil)
        }
        // A cache must not give the answer for one key to another.
        return Response(status: .ok, headers: [.contentType: type, .cacheControl: "no-store"], body: body)
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
        member("event_id", refusal.eventID)
        member("name", refusal.name)
        member("sample")
        text(refusal.sample)
    }
}
