import Foundation

/// Why a whole request was refused: the body of an `application/problem+json` answer (RFC 9457). The request stored nothing; after 500 and
/// 503 this is not known.
package struct RequestProblem: Error, Hashable, Sendable {
    /// For programs; decides the status.
    package let code: Code
    /// For people; holds nothing of the request's body and no key.
    package let detail: String
    /// Further members of the document (RFC 9457 §3.2), such as the name of the `parameter` that is wrong.
    package let members: [String: PropertyValue]
    /// When it may be tried again, in seconds, where that is known.
    package var retryAfter: Int?
    /// Whose the key is, if it is one that does not count any more. Not said to the sender.
    package var projectID: Int32?
    /// Whether another vendor's SDK reads the answer: it takes a limit for a loss, and another document.
    package var isForSender = false
    /// The status of the answer where such an SDK loses what it would keep at another one; nil: that of the code.
    package var statusForSender: Int?

    package init(_ code: Code, detail: String) {
        self.init(code, detail: detail, members: [:])
    }

    /// Detail and members must hold nothing of the request's body and no key.
    package init(_ code: Code, detail: String, members: [String: PropertyValue]) {
        self.code = code
        self.detail = detail
        self.members = members
    }

    /// The refusal of a parameter; the detail holds nothing of its value.
    package static func parameter(_ name: String, _ detail: String) -> RequestProblem {
        RequestProblem(.invalidParameter, detail: detail, members: ["parameter": .string(String(name.prefix(64)))])
    }

    /// The media type of every refusal (RFC 9457).
    package static let contentType = "application/problem+json"

    /// Stable names of refusals. A name is never given a second meaning.
    package enum Code: String, Sendable, CaseIterable {
        /// The body is no batch: its envelope, or the end of an event, cannot be read.
        case malformed
        /// The body is not the gzip that its header promises.
        case invalidEncoding = "invalid_encoding"
        /// A query parameter is unknown, repeated, or has an invalid value; the member `parameter` names it.
        case invalidParameter = "invalid_parameter"
        /// The one event of a request is refused for good.
        case rejected
        /// Beyond ``EventLimits/maximumEventsPerBatch``.
        case tooManyEvents = "too_many_events"
        /// The key is missing or not known.
        case unknownKey = "unknown_key"
        /// The key is known, but not of the kind that may do this.
        case wrongKeyKind = "wrong_key_kind"
        /// Keys of two projects are in one request.
        case otherProject = "other_project"
        /// The key is not for pages of the request's origin.
        case wrongOrigin = "wrong_origin"
        /// There is nothing at the path.
        case notFound = "not_found"
        /// An event of that id would be older than what the store still keeps.
        case expired
        /// Something of that name exists already.
        case exists
        /// The server has no role that may change this in the store.
        case adminRoleMissing = "admin_role_missing"
        /// The path exists, but for another method.
        case methodNotAllowed = "method_not_allowed"
        /// The request did not arrive within its deadline.
        case tooSlow = "too_slow"
        /// Beyond ``EventLimits/maximumBodyBytes``, or ``EventLimits/maximumDecompressedBodyBytes`` once decompressed.
        case bodyTooLarge = "body_too_large"
        /// Neither JSON nor newline-delimited JSON.
        case unsupportedType = "unsupported_type"
        /// Encoded, but not with gzip.
        case unsupportedEncoding = "unsupported_encoding"
        /// While public keys are in use the server answers under names of this machine only, so that no foreign web page can read from it.
        case misdirected
        /// The question asks for more than can be answered in time: ask for less.
        case rangeTooLarge = "range_too_large"
        /// This project holds its share of the server already: try again later.
        case projectBusy = "project_busy"
        /// This project sends more than was set for it: try again when the answer says.
        case rateLimited = "rate_limited"
        /// The server holds as much as it may: try again later.
        case overloaded
        /// The store does not answer: try again later.
        case storeUnavailable = "store_unavailable"
        /// The store's clock shows an earlier time than before, as after a failover to a machine whose clock is wrong: try again later.
        case clockBehind = "clock_behind"
        /// Nobody has made a key for this server yet.
        case notSetUp = "not_set_up"
        /// The server is stopping: try again, elsewhere or later.
        case stopping
        /// A defect of the server; whether the batch was stored is not known.
        case internalError = "internal_error"

        /// The HTTP status of the answer.
        package var status: Int {
            switch self {
            case .malformed, .invalidEncoding, .invalidParameter, .rejected: 400
            case .unknownKey: 401
            case .wrongKeyKind, .otherProject, .wrongOrigin: 403
            case .notFound, .expired: 404
            case .methodNotAllowed: 405
            case .exists, .adminRoleMissing: 409
            case .tooSlow: 408
            case .bodyTooLarge, .tooManyEvents: 413
            case .unsupportedType, .unsupportedEncoding: 415
            case .misdirected: 421
            case .rangeTooLarge: 422
            case .projectBusy, .rateLimited: 429
            case .overloaded, .storeUnavailable, .clockBehind, .notSetUp, .stopping: 503
            case .internalError: 500
            }
        }

        /// What it means, for people.
        package var title: String {
            switch self {
            case .malformed: "The body cannot be read"
            case .invalidEncoding: "The compressed body cannot be read"
            case .invalidParameter: "A parameter cannot be used"
            case .rejected: "The event cannot be stored"
            case .tooManyEvents: "The batch holds too many events"
            case .unknownKey: "The key is not known"
            case .wrongKeyKind: "The key is of another kind"
            case .otherProject: "The keys are of two projects"
            case .wrongOrigin: "The key is not for this page"
            case .notFound: "There is nothing here"
            case .expired: "The event is older than what is kept"
            case .exists: "There is one already"
            case .adminRoleMissing: "The server may not change this"
            case .methodNotAllowed: "The method is not allowed here"
            case .tooSlow: "The request took too long to arrive"
            case .bodyTooLarge: "The body is too large"
            case .unsupportedType: "The content type is not supported"
            case .unsupportedEncoding: "The content encoding is not supported"
            case .misdirected: "The server has another name"
            case .rangeTooLarge: "The question asks for too much"
            case .projectBusy: "The project has more waiting than it may"
            case .rateLimited: "The project sends more than its limit"
            case .overloaded: "The server has more waiting than it may hold"
            case .storeUnavailable: "The store cannot be reached"
            case .clockBehind: "The store's clock is behind"
            case .notSetUp: "The server has no keys yet"
            case .stopping: "The server is stopping"
            case .internalError: "The server failed"
            }
        }

        /// Whether the refusal is about this batch: a smaller one, or one without a certain event, may be accepted.
        package var concernsBatch: Bool {
            switch self {
            case .malformed, .invalidEncoding, .tooManyEvents, .bodyTooLarge: true
            default: false
            }
        }
    }

    /// The HTTP status of the answer. What may come again later is 503 for other vendors' SDKs, some of which give events up after 408 and 429.
    package var status: Int { statusForSender ?? (isForSender && [408, 429].contains(code.status) ? 503 : code.status) }

    /// The answer's body.
    package func encoded(requestID: String) -> [UInt8] {
        var writer = JSONWriter()
        guard !isForSender else {
            // The code is a number, which is what some read instead of the status.
            writer.object { writer in
                writer.member("status", status)
                writer.member("code", status)
                writer.member("error", "\(code.title): \(detail)")
                writer.member("message", detail)
                writer.member("reason", code.rawValue)
                writer.member("request_id", requestID)
            }
            return writer.bytes
        }
        writer.object { writer in
            writer.member("type", "about:blank")
            writer.member("title", code.title)
            writer.member("status", status)
            writer.member("code", code.rawValue)
            writer.member("detail", detail)
            writer.member("request_id", requestID)
            for (name, value) in members.sorted(by: { $0.key < $1.key }) {
                writer.member(named: name)
                writer.value(value, depth: 1)
            }
        }
        return writer.bytes
    }

    /// The code of an answer, if it is one of our own servers' refusals: the media type, the status and a known code must agree.
    package static func code(status: Int, contentType: String?, body: [UInt8]) -> Code? {
        // The media type without its parameters (RFC 9110 §8.3.1).
        let mediaType = contentType?.prefix { $0 != ";" && $0 != " " && $0 != "\t" }.lowercased()
        guard mediaType == Self.contentType,
            let wire = try? JSONDecoder().decode(Wire.self, from: Data(body)),
            let code = Code(rawValue: wire.code), code.status == status, wire.status == status
        else { return nil }
        return code
    }

    private struct Wire: Decodable {
        var code: String
        var status: Int
    }
}
