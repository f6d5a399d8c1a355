import HTTPTypes
import HapaxModel
import Hummingbird

/// `POST /v1/events`: answers a body with a receipt, after COMMIT. With `?dry_run=true` it stores nothing and answers what would become of
/// each event.
@available(macOS 14, *)
struct IngestRoute: Sendable {
    let keys: Keys
    let store: any EventStore
    let writer: GroupCommitWriter
    let metrics: ServerMetrics
    let live: Live
    let senders: SenderDays
    let turns = Turns.work()
    let dryRuns = Turns.dryRuns()
    private let rates = Locked(RateLimits())
    /// Answers dry runs.
    let questions: Questions

    /// A body, and what reads the unpacked one.
    typealias Prepared<Source: EventSource> = (body: RequestBodyReader.Body, source: ([UInt8]) -> Source)

    func respond(to request: Request, _ context: IngestContext) async throws(RequestProblem) -> Response {
        let (sender, isFromPage) = try sender(of: request)
        try checkPage(of: request, sender)
        func prepare() async throws(RequestProblem) -> Prepared<BodyScan> {
            let isLines = try isFromPage && isText(request) ? false : isLines(request)
            return (try await RequestBodyReader.read(request), { BodyScan($0[...], isLines: isLines) })
        }
        // The live view does not show what a dry run would refuse, since no event was sent to be stored.
        if try isDryRun(request) { return try await dryRun(try await prepare(), context, sender) }
        let (ingest, outcome, batchID) = try await commit(request, context, sender, prepare)
        let receipt = Receipt(
            batchID: batchID, received: outcome.received, stored: outcome.stored, results: outcome.results, project: sender.publicID,
            hint: ingest.hint)
        return Routes.response("application/json", receipt.encoded())
    }

    /// Whose events a request brings. A page puts its key into the address and calls its body text: then the browser asks for no leave
    /// before each request (https://fetch.spec.whatwg.org/#cors-safelisted-request-header).
    private func sender(of request: Request) throws(RequestProblem) -> (Keys.Sender, isFromPage: Bool) {
        let authorization = request.headers[.authorization]
        do throws(RequestProblem) {
            guard authorization == nil, let query = request.uri.query, query.contains("key="),
                let key = try QueryParameters(query, known: ["key"], ignoresOthers: true).text("key")
            else { return (try keys.sender(authorization), false) }
            return (try keys.sender(key: key, isPublic: true), true)
        } catch {
            // Of a header that was not sent nothing is to be said.
            let isGeneral = authorization == nil && error.detail == KeyTable.noKnownKey.detail
            throw noted(isGeneral ? Self.noKnownKey : error)
        }
    }

    private static let noKnownKey = RequestProblem(
        .unknownKey, detail: "\(KeyTable.noKnownKey.detail), or of a page the address (?key=)")

    /// Whether the page that a request is from may use its key.
    func checkPage(of request: Request, _ sender: Keys.Sender, via: SenderFormat? = nil) throws(RequestProblem) {
        var origin = request.headers[.origin]
        // A picture names no origin. The keys of the settings are for everybody.
        if origin == nil, request.method == .get, via != nil, sender.keyID != nil { origin = Origins.ofPage(request.headers[.referer]) }
        do throws(RequestProblem) { try sender.check(origin) } catch {
            live.refused(sender.projectID, error, via: via?.via)
            throw error
        }
    }

    /// Counts a key that is not known; of one that was, its project hears.
    func noted(_ problem: RequestProblem, via: SenderFormat? = nil) -> RequestProblem {
        if problem.code == .unknownKey { live.keyWasUnknown() }
        if let projectID = problem.projectID { live.refused(projectID, problem, via: via?.via) }
        return problem
    }

    /// Stores the events of a body.
    ///
    /// - Parameters:
    ///   - via: See ``IngestRequest/via``.
    ///   - prepare: Reads the body.
    func commit<Source: EventSource>(
        _ request: Request, _ context: IngestContext, _ sender: Keys.Sender, via: SenderFormat? = nil,
        _ prepare: () async throws(RequestProblem) -> Prepared<Source>
    ) async throws(RequestProblem) -> (IngestRequest, IngestOutcome, batchID: EventID?) {
        do throws(RequestProblem) {
            // A small body may hold no events, but what a device says of itself: that is known once it has been read.
            if RequestBodyReader.announcedBytes(request) ?? 0 > ServerLimits.smallBody { try takeRate(of: sender, 0) }
            let (ingest, batchID) = try await unpack(try await prepare(), context, sender)
            if ingest.count > 0 { try takeRate(of: sender, ingest.count) }
            let outcome = ingest.isEmpty ? IngestOutcome(received: 0) : try await writer.submit(ingest)
            if !ingest.derived.isEmpty { keys.note(ingest.derived, sender) }
            let source = ingest.source(agent: (via == nil ? nil : request.headers[.posthogInfo]) ?? request.headers[.userAgent])
            if let source { senders.note(outcome.counts, of: source) }
            metrics.answered(outcome, of: sender.projectID, via: source?.via)
            live.answered(ingest, outcome)
            return (ingest, outcome, batchID)
        } catch {
            live.refused(sender.projectID, error, via: via?.via)
            throw error
        }
    }

    private func takeRate(of sender: Keys.Sender, _ events: Int) throws(RequestProblem) {
        guard let limit = sender.eventsPerSecond else { return }
        let wait: Duration? = rates.withLock { rates in
            if let wait = rates.wait(sender.projectID, limit: limit, .now) { return wait }
            rates.charge(sender.projectID, events, limit: limit, .now)
            return nil
        }
        guard let wait else { return }
        var problem = RequestProblem(.rateLimited, detail: "this project may send \(limit) events a second to this server")
        problem.retryAfter = min(max(Int((wait / .seconds(1)).rounded(.up)), 1), ServerLimits.longestRetryAfter)
        throw problem
    }

    /// Decompresses and scans a body, in a turn of its project.
    private func unpack(
        _ prepared: Prepared<some EventSource>, _ context: IngestContext, _ sender: Keys.Sender
    ) async throws(RequestProblem) -> (IngestRequest, EventID?) {
        try writer.checkRoom(for: prepared.body.bytes.count)
        return try await turns.run(sender.projectID) { (turn) throws(RequestProblem) in
            // Without a connection the answer would not be read, and the sender sends the events again.
            guard context.isConnected else { throw RequestProblem(.tooSlow, detail: "the connection has ended") }
            let bytes = try RequestBodyReader.unpacked(prepared.body)
            if turn.isOver(after: bytes.count) { await turn.giveWay() }
            var scan = prepared.source(bytes)
            var request = IngestRequest(
                projectID: sender.projectID, derivedIDs: scan.via == nil ? sender.derivedIDs : .taken, blocked: sender.blocked,
                via: scan.via,
                bodyBytes: bytes.count)
            var read = 0
            while try next(&scan, &request) {
                if turn.isOver(after: scan.position - read) { await turn.giveWay() }
                read = scan.position
            }
            request.end(scan)
            return (request, scan.envelope.batchID)
        }
    }

    private func next(_ scan: inout some EventSource, _ request: inout IngestRequest) throws(RequestProblem) -> Bool {
        do throws(BodyProblem) { return try scan.next { request.add($0, in: $1, $2) } } catch {
            throw RequestProblem(error.code, detail: error.detail)
        }
    }

    func dryRun(
        _ prepared: Prepared<some EventSource>, _ context: IngestContext, _ sender: Keys.Sender, via: SenderFormat? = nil
    ) async throws(RequestProblem) -> Response {
        let answer = try await dryRuns.run(sender.projectID) { (turn) async throws(RequestProblem) -> [UInt8] in
            let place = turn.place
            let request = try await unpack(prepared, context, sender).0
            return try await verdicts(
                on: request,
                QuestionTurn(connection: place, deadline: .now + ServerLimits.shortRead, hasLeft: { !context.isConnected }))
        }
        return try questions.answer(answer, to: sender.projectID)
    }

    /// What would become of each event if the store stays as it is, as JSON. Refusals by the database itself are not foreseen.
    private func verdicts(on request: IngestRequest, _ turn: QuestionTurn) async throws(RequestProblem) -> [UInt8] {
        let group = CommitGroup([request], horizon: store.horizon)
        let found: [EventKey: Int64]
        var verdicts: [RowKey.Place: Bool] = [:]
        do throws(StoreError) {
            found = try await store.reader.fingerprints(group.storeGroup.records.map(\.key) + group.storeGroup.lookups, in: turn)
            let repeats = group.repeats(found: found)
            let stored = repeats.filter { found[$0.key] != nil }
            let same = stored.isEmpty ? [] : try await store.reader.compare(stored.map(group.record), in: turn)
            for (row, isSame) in zip(stored, same) { verdicts[row.place] = isSame }
            // An id that is repeated within the request is compared with its first event, which is not in the store.
            for row in repeats where found[row.key] == nil {
                verdicts[row.place] = group.first(like: row)?.valueHash.value == group.record(row).valueHash.value
            }
        } catch {
            throw RequestProblem(.storeUnavailable, detail: "the store cannot be read now")
        }
        var writer = JSONWriter()
        let outcome = group.outcomes(found: found, verdicts: verdicts).first
        let others = Dictionary((outcome?.results ?? []).map { ($0.index, $0) }, uniquingKeysWith: { $1 })
        let results = (0..<request.count).map { index in
            others[index] ?? Receipt.Result(index: index, eventID: request.row(at: index)?.key.id, outcome: .stored)
        }
        writer.object { writer in
            writer.member("dry_run", true)
            writer.member("would", results: results)
            if let hint = request.hint { writer.member("hint", hint) }
        }
        return writer.bytes
    }

    func isDryRun(_ request: Request) throws(RequestProblem) -> Bool {
        let parameters = try QueryParameters(request.uri.query, known: ["dry_run"], ignoresOthers: true)
        // Unknown parameters are ignored, since proxies add some, but not a misspelt `dry_run`: its events would be stored.
        for pair in (request.uri.query ?? "").split(separator: "&") {
            let name = pair.prefix { $0 != "=" }
            if name != "dry_run", name.lowercased().filter({ $0 != "-" && $0 != "_" }) == "dryrun" {
                throw RequestProblem.parameter(String(name), "is not known; the parameter is called dry_run")
            }
        }
        return try parameters.parse("dry_run", "must be true; without it events are stored") { $0 == "true" ? true : nil } ?? false
    }

    private func mediaType(_ request: Request) -> String {
        (request.headers[.contentType] ?? "").prefix { $0 != ";" }.lowercased().filter { $0 != " " }
    }

    private func isText(_ request: Request) -> Bool { mediaType(request) == "text/plain" }

    private func isLines(_ request: Request) throws(RequestProblem) -> Bool {
        switch mediaType(request) {
        case "application/json": return false
        case "application/x-ndjson": return true
        default:
            throw RequestProblem(.unsupportedType, detail: "the content type must be application/json or application/x-ndjson")
        }
    }
}

extension HTTPField.Name {
    /// Which library of PostHog's has sent a request whose events do not say it.
    fileprivate static let posthogInfo = HTTPField.Name("PostHog-Sdk-Info") ?? .via
}
