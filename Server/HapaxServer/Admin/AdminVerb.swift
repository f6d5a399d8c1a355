import HapaxModel

/// What an admin may ask for that changes something. Both doors, ``AdminRoutes`` over HTTP and ``StoreCommand`` on the command line, make one of
/// these and hand it to ``Admin``, which has the checks, the defaults and the sentences of both.
///
/// What belongs to one machine has the command line alone: `check`, `backup`, and what mends a store whose servers are stopped.
package enum AdminVerb: Sendable {
    case addProject(name: String, timeZone: String? = nil)
    /// Sets all that is given, or nothing. `eventsPerSecond`: 0 for no limit.
    case setProject(name: String, derivedIDs: Registry.DerivedIDs? = nil, eventsPerSecond: Int? = nil, timeZone: String? = nil)
    case removeProject(name: String)
    /// `lasts`: nil for ever.
    case addKey(
        KeyKind, project: String? = nil, name: String = "", isReadOnly: Bool = false, origins: [String] = [], value: String? = nil,
        lasts: Duration? = nil)
    /// The origins replace those of a browser key.
    case setKey(Int32, origins: [String])
    /// `grace`: how long the old key still works, 30 days if it is nil; `lasts`: nil for as long as the old one was to, if that was to end.
    case rotateKey(Int32, grace: Duration? = nil, lasts: Duration? = nil)
    case revokeKey(Int32)
    /// `upTo`: what was received later stays, in Unix milliseconds; nil for now.
    case erase(project: String, user: String, linked: Bool = false, blocks: Bool = false, upTo: Int64? = nil)
    case unblock(project: String, user: String)
    /// `install`: nil for all of the project.
    case acceptLosses(project: String, install: String? = nil)
    /// 0 for ever.
    case setRetention(months: Int)
    case acceptClock
    // On the command line alone.
    case applyRetention
    case resetClock

    /// As on the command line, and in the audit log.
    var name: String {
        switch self {
        case .addProject: "projects add"
        case .setProject: "projects set"
        case .removeProject: "projects remove"
        case .addKey: "keys add"
        case .setKey: "keys set"
        case .rotateKey: "keys rotate"
        case .revokeKey: "keys revoke"
        case .erase: "erase"
        case .unblock: "erase --unblock"
        case .acceptLosses: "accept-losses"
        case .setRetention: "retention set"
        case .acceptClock: "clock accept"
        case .applyRetention: "retention apply"
        case .resetClock: "clock reset"
        }
    }

    /// Whether it only tells what it would do, unless `yes` is said: what it takes cannot be given back.
    var isTriedFirst: Bool {
        switch self {
        case .removeProject, .erase, .acceptLosses, .setRetention: true
        case .setProject(_, let derivedIDs, _, _): derivedIDs == .server
        default: false
        }
    }

    /// Whether it looks through many rows, as trials do and what follows links or books.
    func searches(saysYes: Bool) -> Bool {
        switch self {
        case .acceptLosses: true
        case .erase(_, _, let linked, _, _): linked || !saysYes
        case .removeProject, .setRetention: !saysYes
        default: false
        }
    }

    /// For the audit log: never a key, and never whom an erasure is about.
    var detail: String {
        switch self {
        case .addProject(_, let zone): zone ?? ""
        case .setProject(_, let derivedIDs, let limit, let zone):
            [
                derivedIDs.map { "derived ids: \($0.rawValue)" }, limit.map { $0 == 0 ? "no limit" : "events a second: \($0)" },
                zone.map { "time zone: \($0)" },
            ]
            .compactMap { $0 }.joined(separator: ", ")
        case .addKey(let kind, _, let name, let isReadOnly, let origins, _, _):
            ([kind.rawValue] + (isReadOnly ? ["read-only"] : []) + (name.isEmpty ? [] : [name]) + origins).joined(separator: ", ")
        case .setKey(let id, let origins): (["key \(id)"] + origins).joined(separator: ", ")
        case .rotateKey(let id, _, _), .revokeKey(let id): "key \(id)"
        case .erase(_, _, let linked, let blocks, _):
            [linked ? "linked" : nil, blocks ? "block" : nil].compactMap { $0 }.joined(separator: ", ")
        case .acceptLosses(_, let install): install ?? ""
        case .setRetention(let months): months == 0 ? "for ever" : "\(months) months"
        case .removeProject, .unblock, .acceptClock, .applyRetention, .resetClock: ""
        }
    }
}

/// What has become of an ``AdminVerb``.
package enum AdminAnswer: Sendable {
    case project(Registry.Project)
    /// `secret`: the key itself, which is kept nowhere.
    case key(Registry.Key, secret: String? = nil, replaces: Registry.Key? = nil)
    /// What would go: nothing has been changed. `keys`: of a project, those that work.
    case wouldErase(Erasures.Preview, links: [Erasures.Link], keys: Int?)
    /// Begun; the last one is that of the user, or of the project.
    case erasing([Erasures.Erasure], links: [Erasures.Link])
    case unblocked(project: String)
    /// How many numbers are missing, or were until now.
    case losses(Int64, isTrial: Bool)
    case wouldRemove(Retention.Preview)
    case retention(Retention.State)
    /// What the clock shows, in Unix milliseconds.
    case clock(Int64)
    case clockReset(ClockMarks.Reset)
}

/// Who asks.
package struct AdminCaller: Sendable {
    /// For the audit log; nil for the name of the key.
    var name: String?
    var keyID: Int32?
    /// The only project that it is for; nil for all.
    var projectID: Int32?
    var isReadOnly = false
}
