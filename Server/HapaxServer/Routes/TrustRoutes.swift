import HTTPTypes
import HapaxModel
import Hummingbird

/// `GET /v1/trust` and `/v1/installs`: what became of each number that installs have given.
@available(macOS 14, *)
struct TrustRoutes: Sendable {
    let questions: Questions

    func trust(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(request, ["since"])
        let since = try Self.since(parameters)
        let (trust, now) = try await reading(context, projectID) { reader, now throws(StoreError) in
            let trust = try await reader.trust(since: since, now: now)
            return (trust, max(now, trust.heardTo ?? 0))
        }
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("as_of", Self.instant(now))
            writer.member("since", since == 0 ? nil : Self.instant(since))
            writer.member("verdict", trust.verdict.rawValue)
            writer.member("installs", trust.installs)
            writer.member("heard_from", trust.heardFrom.map(Self.instant))
            writer.member("heard_to", trust.heardTo.map(Self.instant))
            writer.members(of: trust.figures)
            writer.member("repeated", trust.repeated)
            writer.member("waiting_installs", trust.waiting.installs)
            writer.member("waiting_since", trust.waitingSince.map(Self.instant))
            writer.member("unheard", part: trust.unheard)
            writer.member("vanished_browsers", part: trust.vanished)
            writer.member("unknown", part: trust.unknown)
            writer.member("reasons", list: trust.reasons) { writer, reason in
                writer.object { writer in
                    writer.member("reason", reason.reason)
                    writer.member("by", reason.isOfClient ? "client" : "server")
                    writer.member("events", reason.events)
                    writer.member("since", Self.instant(reason.since))
                }
            }
            writer.member("losses", list: trust.losses) { writer, install in writer.object { $0.members(of: install, isWhole: false) } }
        }
        return try questions.answer(writer.bytes, to: projectID)
    }

    func installs(_ request: Request, _ context: IngestContext) async throws -> Response {
        let (parameters, projectID, _) = try questions.accept(request, ["sort", "since", "limit"])
        let order = try parameters.word("sort", Trust.Order.self) ?? .heard
        let (limit, since) = (try parameters.count("limit", upTo: 1_000, default: Trust.shown), try Self.since(parameters))
        let installs = try await reading(context, projectID) { reader, _ throws(StoreError) in
            try await reader.installs(order, limit: limit, since: since)
        }
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("installs", list: installs) { writer, install in writer.object { $0.members(of: install, isWhole: false) } }
        }
        return try questions.answer(writer.bytes, to: projectID)
    }

    func install(_ request: Request, _ context: IngestContext, id: String) async throws -> Response {
        let (_, projectID, _) = try questions.accept(request, [])
        guard let id = EventID(uuidString: id) else { throw RequestProblem.parameter("id", "must be a UUID") }
        guard let install = try await reading(context, projectID, { reader, _ throws(StoreError) in try await reader.install(id) }) else {
            throw RequestProblem(.notFound, detail: "no install of this project has that id")
        }
        var writer = JSONWriter()
        writer.object { $0.members(of: install, isWhole: true) }
        return try questions.answer(writer.bytes, to: projectID)
    }

    private func reading<Value>(
        _ context: IngestContext, _ projectID: Int32, _ body: (TrustReader, _ now: Int64) async throws(StoreError) -> Value
    ) async throws(RequestProblem) -> Value {
        let database = questions.store.sql
        return try await questions.heavily(for: context, of: projectID, in: questions.turns, within: ServerLimits.heavyRead) {
            turn throws(StoreError) in
            let now = try await database.settled()
            return try await body(TrustReader(database: database, projectID: projectID, purpose: .question(turn)), now)
        }
    }

    /// In Unix milliseconds; 0 for all.
    private static func since(_ parameters: QueryParameters) throws(RequestProblem) -> Int64 {
        try parameters.span("since", "to").lowerBound / 1_000
    }

    fileprivate static func instant(_ milliseconds: Int64) -> String { Timestamp(clampingUnixMilliseconds: milliseconds).description }
}

@available(macOS 14, *)
extension JSONWriter {
    /// - Parameter isKnown: Else only how many were given is.
    fileprivate mutating func members(of figures: InstallBook.Figures, isKnown: Bool = true) {
        member("given", figures.given)
        member("stored", isKnown ? figures.stored : nil)
        member("duplicates", isKnown ? figures.duplicates : nil)
        member("refused", isKnown ? figures.refused : nil)
        member("discarded", isKnown ? figures.discarded : nil)
        member("waiting", isKnown ? figures.waiting : nil)
        member("missing", isKnown ? figures.missing : nil)
    }

    fileprivate mutating func member(_ name: StaticString, part: Trust.Part) {
        member(
            name,
            object: { writer in
                writer.member("installs", part.installs)
                writer.member("events", part.events)
            })
    }

    /// - Parameter isWhole: Also what has a fate, and why.
    fileprivate mutating func members(of install: Trust.Install, isWhole: Bool) {
        let book = install.book
        member("install_id", install.id)
        member("heard_at", TrustRoutes.instant(install.heardAt))
        member("is_unknown", book.isUnknown)
        member("begins", book.begins)
        members(of: book.figures, isKnown: !book.isUnknown)
        member("repeated", book.repeated)
        member("missing_since", book.missingSince.map(TrustRoutes.instant))
        member("missing_ranges", ranges: book.missing.ranges)
        guard isWhole else { return }
        member("created", book.created)
        member("acknowledged", book.acknowledged)
        member("stored_ranges", ranges: book.stored.ranges)
        member("held_ranges", ranges: book.held.ranges)
        member("fates", list: book.fates) { writer, fate in
            writer.object { writer in
                writer.member("first", fate.sequences.lowerBound)
                writer.member("last", fate.sequences.upperBound)
                writer.member("reason", fate.reason)
                writer.member("by", fate.isOfClient ? "client" : "server")
                writer.member("first_told_at", TrustRoutes.instant(fate.first))
                writer.member("last_told_at", TrustRoutes.instant(fate.last))
            }
        }
    }

    /// Each as `[first, last]`.
    private mutating func member(_ name: StaticString, ranges: [ClosedRange<Int64>]) {
        member(name, list: ranges) { writer, range in
            writer.raw("[")
            writer.integer(range.lowerBound)
            writer.raw(",")
            writer.integer(range.upperBound)
            writer.raw("]")
        }
    }
}
