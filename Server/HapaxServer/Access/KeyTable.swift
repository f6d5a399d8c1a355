import HapaxModel

/// Which keys there are and what each may do, at one moment: those of the settings and those of the store. A value without clock or lock.
struct KeyTable: Sendable {
    /// Whom a request is from.
    struct Holder: Hashable, Sendable {
        var kind: KeyKind
        /// nil: every project.
        var projectID: Int32?
        /// Its number in the store; nil for a key of the settings.
        var keyID: Int32?
        /// Of an admin key.
        var isReadOnly = false
        /// The pages that may use it; nil for a key that is not for pages.
        var origins: Origins?
    }

    private struct Entry {
        var holder: Holder
        /// Unix milliseconds.
        var expiresAt: Int64?
        var isRevoked = false
        /// Days since 1970-01-01.
        var lastUsed: Int32?
    }

    private var entries: [KeyDigest: Entry] = [:]
    private var digests: [Int32: KeyDigest] = [:]
    private(set) var projects: [String: Int32] = [:]
    /// What clients call each project.
    private var publicIDs: [Int32: String] = [:]
    /// Whose derived ids come with server keys only.
    private var guarded: Set<Int32> = []
    private var limits: [Int32: Int] = [:]
    private(set) var blocked: [Int32: BlockedUsers] = [:]
    private var used: Set<Int32> = []
    /// The pages that may use some key.
    private(set) var origins = Origins.union([])

    /// - Parameter registry: What the store holds; a key of the settings counts more than the same one there.
    init(_ fixed: StaticKeys, _ registry: Registry.Contents) {
        (projects, blocked) = (fixed.projects, registry.blocked)
        for project in registry.projects {
            projects[project.name] = project.id
            publicIDs[project.id] = project.publicID
            if project.derivedIDs == .server { guarded.insert(project.id) }
            limits[project.id] = project.eventsPerSecond
        }
        for key in registry.keys {
            let holder = Holder(
                kind: key.kind, projectID: key.projectID, keyID: key.id, isReadOnly: key.isReadOnly,
                origins: key.kind == .browser ? key.origins : nil)
            entries[key.digest] = Entry(
                holder: holder, expiresAt: key.expiresAt, isRevoked: key.revokedAt != nil, lastUsed: key.lastUsed?.daysSince1970)
            digests[key.id] = key.digest
        }
        let known = Set(registry.projects.map(\.id))
        for (digest, holder) in fixed.holders {
            // A project that was removed meanwhile takes nothing more.
            if let projectID = holder.projectID, !known.isEmpty, !known.contains(projectID) { continue }
            entries[digest] = Entry(holder: holder)
        }
        origins = Origins.union(entries.values.compactMap(\.holder.origins))
    }

    static let noKnownKey = RequestProblem(.unknownKey, detail: "the header Authorization: Bearer must carry a known key")

    /// Whether nobody has made a key yet, not even one that is revoked now.
    var isEmpty: Bool { entries.isEmpty }

    /// - Parameter now: Unix milliseconds.
    mutating func holder(_ digest: KeyDigest, now: Int64) throws(RequestProblem) -> Holder {
        guard let entry = entries[digest] else {
            throw Self.noKnownKey
        }
        try Self.check(entry, now)
        if let id = entry.holder.keyID {
            let day = Int32(clamping: now / 86_400_000)
            if entry.lastUsed != day {
                entries[digest]?.lastUsed = day
                used.insert(id)
            }
        }
        return entry.holder
    }

    /// Whether a key that was good when its request began is so still.
    func isValid(_ holder: Holder, now: Int64) -> Bool {
        guard let id = holder.keyID else { return true }
        guard let entry = digests[id].flatMap({ entries[$0] }) else { return false }
        return (try? Self.check(entry, now)) != nil
    }

    /// See ``Registry/DerivedIDs``.
    func derivedIDs(of holder: Holder) -> DerivedIDRule {
        if holder.kind == .server { return .taken }
        return holder.projectID.map(guarded.contains) == true ? .refused : .counted
    }

    func projectName(_ digest: KeyDigest) -> String? {
        guard let projectID = entries[digest]?.holder.projectID else { return nil }
        return projects.first { $0.value == projectID }?.key
    }

    func eventsPerSecond(of projectID: Int32) -> Int? { limits[projectID] }

    /// What clients call a project; nil where the store does not know it.
    func publicID(of projectID: Int32) -> String? { publicIDs[projectID] }

    /// Keys of the store that have been used on a day for the first time, since the last call.
    mutating func takeUsed() -> Set<Int32> {
        defer { used = [] }
        return used
    }

    private static func check(_ entry: Entry, _ now: Int64) throws(RequestProblem) {
        guard entry.isRevoked || entry.expiresAt.map({ $0 <= now }) == true else { return }
        // Who holds it may learn why it is refused.
        var problem = RequestProblem(.unknownKey, detail: entry.isRevoked ? "this key has been revoked" : "this key has expired")
        problem.projectID = entry.holder.projectID
        throw problem
    }
}
