/// How the SDKs of one family write their events, as data. What it does not name is kept under `$via`. A class, since it is handed on with each event: a copy of all its
/// lists would cost as much as reading some fields.
package final class SenderFormat: Sendable {
    /// What a field of an event is. Of fields with one role the one with the least rank counts; the others are kept under `$via`.
    enum Role: Sendable, Equatable {
        case id
        case name
        /// Names the event, after a `$`, if it has no name.
        case type
        case time(rank: Int)
        case user(rank: Int)
        /// The user, if there is no other one; else `$anonymous_id`.
        case anonymous(rank: Int)
        /// The user, if nothing else says who it is; the id is unique in it.
        case source
        case properties(rank: Int)
        /// Holds the properties if it is an object; else it is one.
        case data
        /// What is done to a profile: names the event, and holds its properties.
        case operation
        /// What form the data has: kept if that is not JSON.
        case mediaType
        /// Says whose event it is, if nothing else does.
        case key
        /// A key that says nothing here: not stored, and not shown.
        case hidden
        /// Of the transport, another one at each attempt: not stored.
        case dropped
    }

    /// What a field of the body is, beside its events.
    enum BodyRole: Sendable {
        case events
        case sentAt
        /// Belongs to each event.
        case shared
        /// Says whose events they are, if nothing else does.
        case key
        case dropped
    }

    /// Its name in `$via.sdk`; part of ids, so it is never changed.
    package let via: String
    /// What ends each laid event.
    let mark: [UInt8]
    let body: [(name: StaticString, role: BodyRole)]
    private let event: Roles
    /// The same of members of an event's properties; the others stay there.
    private let nested: Roles
    /// Texts before an id that begins with its instant: the milliseconds follow, then a hyphen.
    let datedPrefixes: [String]
    /// What an id that is no UUID is one with.
    let scope: Scope
    /// What an event of a type is called, whatever its own name is.
    let typeNames: [(type: StaticString, name: StaticString)]
    /// Types whose events must have a name.
    let named: [StaticString]
    /// Rewrites each event before it is read: what stands in texts becomes JSON.
    let unwrapped: (@Sendable (UnsafeBufferPointer<UInt8>) -> [UInt8])?
    /// Whether a number below 10¹¹ is an instant in seconds.
    let mayBeInSeconds: Bool
    /// Whether an event without a time happened when its id, of version 7, was made.
    let isDatedByID: Bool
    /// The paths that its SDKs send to, each with the type of a body that is one event without a type.
    package let paths: [(path: String, type: String)]
    /// Those of them whose address may hold the events, as a picture's on a page.
    package let pixels: [String]
    /// Whether such an address is one event; else it holds them in a form's field.
    package let isEventInAddress: Bool
    /// Parameters of an address that may hold the key.
    package let keyParameters: [StaticString]
    /// Values of the form's field `gzip` that say that its events are encrypted.
    package let encrypted: [String]
    /// Where a stored event says which library sent it, and of which version: properties, the first that is there.
    package let libraries: [(name: String, version: String)]
    package let answer: Answer
    /// Seconds after which a refused request may come again.
    package let retryAfter: Int
    /// Whether its SDKs keep what is answered 403, and lose what another refusal for good says.
    package let keepsAtForbidden: Bool

    init(
        via: String, body: [(name: StaticString, role: BodyRole)], event: [(name: StaticString, role: Role)],
        nested: [(name: StaticString, role: Role)] = [], datedPrefixes: [String] = [], scope: Scope = .nothing,
        typeNames: [(type: StaticString, name: StaticString)] = [],
        unwrapped: (@Sendable (UnsafeBufferPointer<UInt8>) -> [UInt8])? = nil, mayBeInSeconds: Bool = false, isDatedByID: Bool = false,
        paths: [(path: String, type: String)], pixels: [String] = [], isEventInAddress: Bool = false, named: [StaticString] = [],
        keyParameters: [StaticString] = ["api_key"], encrypted: [String] = [], libraries: [(name: String, version: String)],
        answer: Answer = .all, retryAfter: Int, keepsAtForbidden: Bool = false
    ) {
        (self.via, self.body, self.event, self.nested, self.libraries) = (via, body, Roles(event), Roles(nested), libraries)
        mark = Array(#""sdk":"\#(via)"}}}"#.utf8)
        (self.datedPrefixes, self.scope, self.mayBeInSeconds, self.isDatedByID) = (datedPrefixes, scope, mayBeInSeconds, isDatedByID)
        (self.typeNames, self.named, self.unwrapped) = (typeNames, named, unwrapped)
        (self.paths, self.pixels, self.isEventInAddress) = (paths, pixels, isEventInAddress)
        (self.keyParameters, self.encrypted, self.answer) = (keyParameters, encrypted, answer)
        (self.retryAfter, self.keepsAtForbidden) = (retryAfter, keepsAtForbidden)
    }

    enum Scope: Sendable {
        case nothing, anonymousUser, nameAndUser
        /// Of a UUID as well: only together with its source it is one.
        case source
    }

    /// What an SDK reads of the answer to a request whose events are accounted for.
    package enum Answer: Sendable {
        /// One document for all families.
        case all
        /// `1`, if it has not asked for more.
        case one
        /// What became of each event, by the id that it was sent with.
        case results
        /// Of one event the status alone, of several a receipt.
        case receipt
    }

    /// The same of events that are sent as ours.
    package static let ownLibrary = [(name: "$lib", version: "$lib_version")]

    package static let all = [segment, posthog, posthogResults, amplitude, mixpanel, sensors, snowplow, cloudEvents]

    /// The ids that events may have whose SDK has given them this text, with whatever key; not of one that is an id only together with more.
    package static func ids(of text: String) -> [EventID] {
        var text = text
        return text.withUTF8 { bytes in
            // One of each family.
            all.filter { $0.scope == .nothing && $0.answer != .results }.flatMap { format in
                [SenderDoor.public, .secret].map { SenderIDs(format, $0).id(of: bytes) }
            }
        }
    }

    /// What stands in front of a path that names the key, as in `/k/KEY/v1/batch`.
    package static let keyPrefix = "/k/"

    /// Whether a path is one of a sender's, whose refusals its SDK understands.
    package static func isPath(_ path: Substring) -> Bool {
        // Nearly all requests are of our own clients.
        if path == "/v1/events" { return false }
        // As the router reads it.
        var parts = path.split(separator: "/", maxSplits: 8)
        if parts.first == "k", parts.count > 2 { parts.removeFirst(2) }
        return pathNames.contains("/" + parts.joined(separator: "/"))
    }

    /// Whether a path ends like one: its host was set with a path in it.
    package static func isNearlyPath(_ path: Substring) -> Bool { all.contains { $0.paths.contains { path.hasSuffix($0.path) } } }

    private static let pathNames = Set(all.flatMap { $0.paths.map { $0.path } })

    /// The format of a body that came on one of this one's paths: two families share `/batch`, and the name of the array tells them apart.
    func actual(of body: [UInt8]) -> SenderFormat {
        guard via == Self.posthog.via else { return self }
        return body.withUnsafeBufferPointer { bytes in
            let cursor = JSONCursor(bytes)
            var steps = JSONSteps(bytes, at: JSONSteps.startOfText(bytes))
            steps.skipWhitespace()
            guard steps.skip(UInt8(ascii: "{")) else { return self }
            repeat {
                steps.skipWhitespace()
                guard let key = steps.string() else { return self }
                steps.skipWhitespace()
                guard steps.skip(UInt8(ascii: ":")) else { return self }
                steps.skipWhitespace()
                if steps.current == UInt8(ascii: "["), cursor.equals(key, "events") { return .amplitude }
                if cursor.equals(key, "batch") || cursor.equals(key, "event") { return self }
                guard steps.value() != nil else { return self }
                steps.skipWhitespace()
            } while steps.skip(UInt8(ascii: ","))
            return self
        }
    }

    /// Whether any member of an event's properties is none.
    var hasNestedRoles: Bool { !nested.all.isEmpty }

    func role(of key: JSONCursor.Text, in cursor: JSONCursor) -> Role? { event[key, cursor] }

    func nestedRole(of key: JSONCursor.Text, in cursor: JSONCursor) -> Role? { nested[key, cursor] }

    /// The roles of fields by the length of their names, since each member of each event is looked up.
    private struct Roles: Sendable {
        let all: [(name: StaticString, role: Role)]
        private let byLength: [[(name: StaticString, role: Role)]]

        init(_ all: [(name: StaticString, role: Role)]) {
            self.all = all
            let longest = all.map(\.name.utf8CodeUnitCount).max() ?? 0
            byLength = (0...longest).map { length in all.filter { $0.name.utf8CodeUnitCount == length } }
        }

        subscript(key: JSONCursor.Text, cursor: JSONCursor) -> Role? {
            if key.hasEscapes { return all.first { cursor.equals(key, $0.name) }?.role }
            guard key.range.count < byLength.count else { return nil }
            return byLength[key.range.count].first { cursor.equals(key, $0.name) }?.role
        }
    }

    func bodyRole(of key: JSONCursor.Text, in cursor: JSONCursor) -> BodyRole? {
        body.first { cursor.equals(key, $0.name) }?.role
    }
}
