import Foundation

/// What became of each event of one batch. The server sends it only after the commit of every event it calls stored.
package struct Receipt: Hashable, Sendable {
    /// The request's own batch id; nil if it had none.
    package var batchID: EventID?
    /// Events found in the request.
    package var received: Int
    /// Events stored by this request for the first time.
    package var stored: Int
    /// Every event that was not stored now, in the order of the request.
    package var results: [Result]
    /// Names the project that the events went to, for ever: another one of that name, in another database, is named otherwise.
    package var project: String?
    /// For people: a note that something stored is probably a mistake.
    package var hint: String?

    /// What became of one event that was not stored now.
    package struct Result: Hashable, Sendable {
        /// The event's place in the request, from 0.
        package var index: Int
        /// The event's id; nil if it could not be read.
        package var eventID: EventID?
        /// Never ``Outcome/stored`` on the wire: stored events are only counted.
        package var outcome: Outcome
        /// A stable name for a refusal; one of ``EventProblem/Reason`` from this version's servers.
        package var reason: String?
        /// For people.
        package var detail: String?

        /// The outcome of the event at a place of the request.
        package init(index: Int, eventID: EventID?, outcome: Outcome, reason: String? = nil, detail: String? = nil) {
            self.index = index
            self.eventID = eventID
            self.outcome = outcome
            self.reason = reason
            self.detail = detail
        }
    }

    package enum Outcome: String, Sendable, CaseIterable {
        /// In the store, by this request.
        case stored
        /// In the store already, with the same content.
        case duplicate
        /// Another content is in the store under this id; it stays.
        case conflict
        /// Not stored, and never will be as it is.
        case rejected
        /// Not stored: older than what the store still keeps. Also the answer for an event that was stored once and removed since.
        case expired
        /// Not stored; sending it again may succeed.
        case retry

        /// An outcome that this version does not know counts as `retry`: it may not be final.
        init(wire: String) {
            self = Outcome(rawValue: wire) ?? .retry
        }
    }

    /// Does not check that the counts add up; ``verdicts(for:sent:)`` does.
    package init(batchID: EventID?, received: Int, stored: Int, results: [Result], project: String? = nil, hint: String? = nil) {
        self.project = project
        self.hint = hint
        self.batchID = batchID
        self.received = received
        self.stored = stored
        self.results = results
    }

    /// How many were in the store already, with the same content.
    package var duplicates: Int { results.count { $0.outcome == .duplicate } }
    /// How many never will be stored as they are.
    package var rejected: Int { results.count { $0.outcome == .rejected } }
}

// MARK: - Acceptance

extension Receipt {
    /// What became of each sent event, in the order sent, if this receipt is the complete answer to exactly that batch.
    ///
    /// If it is not, nothing is known about any of the events, and all must be kept (I5).
    ///
    /// - Returns: nil unless the batch id is ours, `received` is the number sent, stored and listed events add up to it, and every listed
    ///   index is in range, unique and carries the id sent there.
    package func verdicts(for batchID: EventID, sent ids: [EventID]) -> [Result]? {
        guard self.batchID == batchID, received == ids.count, stored >= 0, stored <= received,
            results.count == received - stored
        else { return nil }
        var verdicts = ids.enumerated().map { Result(index: $0.offset, eventID: $0.element, outcome: .stored) }
        var seen = [Bool](repeating: false, count: ids.count)
        for result in results {
            guard ids.indices.contains(result.index), !seen[result.index], result.eventID == ids[result.index] else { return nil }
            // `results` lists only events that were not stored: the counts would add up and yet be wrong.
            guard result.outcome != .stored else { return nil }
            seen[result.index] = true
            verdicts[result.index] = result
        }
        return verdicts
    }
}

// MARK: - Wire

extension Receipt {
    /// The answer's body.
    package func encoded() -> [UInt8] {
        var writer = JSONWriter(capacity: 160 + results.count * 96)
        writer.object { writer in
            writer.member("batch_id", batchID)
            writer.member("received", received)
            writer.member("stored", stored)
            writer.member("duplicates", duplicates)
            writer.member("rejected", rejected)
            writer.member("results", results: results)
            if let project { writer.member("project", project) }
            if let hint { writer.member("hint", hint) }
        }
        return writer.bytes
    }

    /// Reads an answer's body.
    ///
    /// - Throws: `DecodingError` if it is not a receipt. Fields that this version does not know are ignored.
    package init(json: [UInt8]) throws {
        let wire = try JSONDecoder().decode(Wire.self, from: Data(json))
        self.init(
            batchID: wire.batch_id, received: wire.received, stored: wire.stored,
            results: wire.results.map {
                Result(
                    index: $0.index, eventID: $0.event_id, outcome: Outcome(wire: $0.outcome), reason: $0.reason,
                    detail: $0.detail)
            }, project: wire.project)
    }

    private struct Wire: Decodable {
        var batch_id: EventID?
        var received: Int
        var stored: Int
        var results: [WireResult]
        var project: String?
    }

    private struct WireResult: Decodable {
        var index: Int
        var event_id: EventID?
        var outcome: String
        var reason: String?
        var detail: String?
    }
}

extension JSONWriter {
    /// A list of what became of events.
    package mutating func member(_ name: StaticString, results: [Receipt.Result]) {
        member(name, list: results) { writer, result in
            writer.object { writer in
                writer.member("index", result.index)
                writer.member("event_id", result.eventID)
                writer.member("outcome", result.outcome.rawValue)
                if let reason = result.reason { writer.member("reason", reason) }
                if let detail = result.detail { writer.member("detail", detail) }
            }
        }
    }
}
