import HTTPTypes
import HapaxModel
import Hummingbird

/// What all questions have in common: who may ask what of which project, in whose turn and for how long, and who pays for the answer's bytes.
@available(macOS 14, *)
struct Questions: Sendable {
    let keys: Keys
    let store: any EventStore
    let failures: FailureLog
    let turns = Turns.questions()
    let answers: Budget

    init(keys: Keys, store: any EventStore, limits: ServerLimits, failures: FailureLog) {
        (self.keys, self.store, self.failures) = (keys, store, failures)
        answers = Budget(
            limit: limits.untakenAnswers, limitOfOne: limits.untakenAnswers / 2, what: "answers have not been taken yet")
    }

    /// - Parameter known: The parameters that the path has, apart from `project`.
    func accept(
        _ request: Request, _ known: Set<String>, repeatable: Set<String> = []
    ) throws(RequestProblem) -> (parameters: QueryParameters, projectID: Int32, holder: Keys.Holder) {
        // The key is checked first, so that a client without one learns nothing about parameters.
        let holder = try keys.reader(request.headers[.authorization])
        let parameters = try QueryParameters(request.uri.query, known: known.union(["project"]), repeatable: repeatable)
        return (parameters, try keys.project(of: holder, named: parameters.text("project")), holder)
    }

    func heavily<Value>(
        for context: IngestContext, of projectID: Int32, in turns: Turns, within time: Duration,
        _ body: (QuestionTurn) async throws(StoreError) -> Value
    ) async throws(RequestProblem) -> Value {
        try await heavily(for: context, of: projectID, in: turns, within: time, asking: {}) { (_, turn) throws(StoreError) in
            try await body(turn)
        }
    }

    /// - Parameters:
    ///   - context: Of the connection that asks: once it has ended, so does the question.
    ///   - question: Reads the texts of the question, in its turn, since the caller decides how much that takes.
    func heavily<Question, Value>(
        for context: IngestContext, of projectID: Int32, in turns: Turns, within time: Duration,
        asking question: () throws(RequestProblem) -> Question, _ body: (Question, QuestionTurn) async throws(StoreError) -> Value
    ) async throws(RequestProblem) -> Value {
        try await turns.run(projectID) { (turn) throws(RequestProblem) in
            let place = turn.place
            let (question, turn) = (
                try question(), QuestionTurn(connection: place, deadline: .now + time, hasLeft: { !context.isConnected })
            )
            return try await reading(for: context) { () throws(StoreError) in try await body(question, turn) }
        }
    }

    func reading<Value>(
        for context: IngestContext? = nil, _ body: () async throws(StoreError) -> Value
    ) async throws(RequestProblem) -> Value {
        let hasLeft = { context?.isConnected == false }
        do throws(StoreError) {
            guard !hasLeft() else { throw .tooHeavy }
            let value = try await body()
            failures.succeeded()
            return value
        } catch .tooHeavy where hasLeft() {
            throw RequestProblem(.tooSlow, detail: "the connection has ended")
        } catch .tooHeavy {
            throw RequestProblem(.rangeTooLarge, detail: "this takes longer than a question may; ask for a shorter span")
        } catch {
            failures.failed(error)
            throw RequestProblem(.storeUnavailable, detail: "the store cannot be read now")
        }
    }

    /// The same for figures that a client may ask for again: 304 if they are as they were (RFC 9110 §13.1.2).
    func answer(
        _ bytes: [UInt8], to projectID: Int32, type: String = "application/json", again request: Request
    ) throws(RequestProblem) -> Response {
        let tag = "\"\(bytes.withUnsafeBytes { SHA256Digest(of: $0) }.hex.prefix(32))\""
        let isKnown = request.headers[values: .ifNoneMatch].contains { field in
            field.split(separator: ",").contains { part in
                let part = part.filter { $0 != " " }
                return part == "*" || part == tag || part == "W/\(tag)"
            }
        }
        var response = isKnown ? Response(status: .notModified) : try answer(bytes, to: projectID, type: type)
        response.headers[.eTag] = tag
        response.headers[.cacheControl] = "private, no-cache"
        response.headers[.vary] = "Authorization, Accept"
        return response
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
