/// How the SDKs of one family write their events, as data. What it does not name is kept under `$via`.
package struct SenderFormat: Sendable {
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
        /// Says whose event it is, if nothing else does.
        case key
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
    private(set) var body: [(name: StaticString, role: BodyRole)]
    let event: [(name: StaticString, role: Role)]
    /// The same of members of an event's properties; the others stay there.
    var nested: [(name: StaticString, role: Role)] = []
    /// Texts before an id that begins with its instant: the milliseconds follow, then a hyphen.
    var datedPrefixes: [String] = []
    /// What an id that is no UUID is one with.
    var scope = Scope.nothing
    /// What an event of a type is called, whatever its own name is.
    var typeNames: [(type: String, name: String)] = []
    /// Rewrites each event before it is read: what stands in texts becomes JSON.
    var unwrapped: (@Sendable (UnsafeBufferPointer<UInt8>) -> [UInt8])?
    /// Whether a number below 10¹¹ is an instant in seconds.
    var mayBeInSeconds = false
    /// Whether an event without a time happened when its id, of version 7, was made.
    var isDatedByID = false
    /// The paths that its SDKs send to, each with the type of a body that is one event without a type.
    package private(set) var paths: [(path: String, type: String)]
    /// Those of them whose address may hold the events, as a picture's on a page.
    package var pixels: [String] = []
    /// Whether such an address is one event; else it holds them in a form's field.
    package var isEventInAddress = false
    /// Types whose events must have a name.
    var named: [String] = []
    /// Parameters of an address that may hold the key.
    package var keyParameters = ["api_key"]
    /// Values of the form's field `gzip` that say that its events are encrypted.
    package var encrypted: [String] = []
    /// Where a stored event says which library sent it, and of which version: properties, the first that is there.
    package let libraries: [(name: String, version: String)]
    package var answer = Answer.all
    /// Seconds after which a refused request may come again.
    package let retryAfter: Int
    /// Whether its SDKs keep what is answered 403, and lose what another refusal for good says.
    package var keepsAtForbidden = false

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

    func with(paths: [String], answer: Answer, body: [(name: StaticString, role: BodyRole)]) -> SenderFormat {
        var format = self
        (format.paths, format.pixels) = (paths.map { ($0, "") }, [])
        (format.answer, format.body) = (answer, body)
        return format
    }

    /// The format of a body that came on one of this one's paths: two families share `/batch`, and the name of the array tells them apart.
    func actual(of body: [UInt8]) -> SenderFormat {
        guard via == Self.posthog.via else { return self }
        return body.withUnsafeBufferPointer { bytes in
            let cursor = JSONCursor(bytes)
            var steps = JSONSteps(bytes)
            steps.skipWhitespace()
            guard steps.skip(UInt8(ascii: "{")) else { return self }
            repeat {
                steps.skipWhitespace()
                guard let key = steps.string() else { return self }
                steps.skipWhitespace()
                guard steps.skip(UInt8(ascii: ":")) else { return self }
                steps.skipWhitespace()
                if steps.current == UInt8(ascii: "[") { return cursor.equals(key, "events") ? .amplitude : self }
                guard steps.value() != nil else { return self }
                steps.skipWhitespace()
            } while steps.skip(UInt8(ascii: ","))
            return self
        }
    }

    func role(of key: JSONCursor.Text, in cursor: JSONCursor) -> Role? {
        event.first { cursor.equals(key, $0.name) }?.role
    }

    func nestedRole(of key: JSONCursor.Text, in cursor: JSONCursor) -> Role? {
        nested.first { cursor.equals(key, $0.name) }?.role
    }

    func bodyRole(of key: JSONCursor.Text, in cursor: JSONCursor) -> BodyRole? {
        body.first { cursor.equals(key, $0.name) }?.role
    }
}
