import Foundation
import HapaxModel

/// Who may do what, as this server knows it now. It goes on with what it has read last while the store does not answer.
final class Keys: Sendable {
    typealias Holder = KeyTable.Holder

    /// Where the events of a request go.
    struct Sender: Sendable {
        var projectID: Int32
        /// What clients call the project.
        var publicID: String?
        var derivedIDs: DerivedIDRule
        /// Whether its key is a server's, which is in no app.
        var isServer: Bool
        /// Whose events are refused; nil if nobody's are.
        var blocked: BlockedUsers?
        /// nil for a key of the settings.
        var keyID: Int32?
        /// nil: as many as the server can take.
        var eventsPerSecond: Int?
        /// The pages that may use the key; nil for a key that is not for pages.
        var origins: Origins?

        /// - Parameter origin: Of the page that a request is from.
        func check(_ origin: String?) throws(RequestProblem) {
            guard let origin, let origins, !origins.contains(origin) else { return }
            let shown = String(origin.prefix(Keys.shownOrigin)).printable
            // All of them, since those that are not named go; and nothing that a shell would take for more than a word.
            let all = (origins.texts + [(try? Origins([shown])) == nil ? "ORIGIN" : shown]).map { "--origin '\($0)'" }
            let list = all.count > 6 ? "--origin … for each page that it lists and for these" : all.joined(separator: " ")
            let way =
                keyID.map { "this lets them: hapax-server keys set \($0) \(list)" } ?? "a browser key of your own is (docs/browsers.md)"
            throw RequestProblem(.wrongOrigin, detail: "the key is not for pages of \(shown); \(way)")
        }
    }

    /// Characters of an unlisted origin in a refusal.
    private static let shownOrigin = 100

    private let fixed: StaticKeys
    private let registry: Registry
    private let currentTime: @Sendable () -> Int64
    private let table: Locked<KeyTable>
    private let derived = Locked(DerivedIDCounts())
    /// The refreshes, numbered as they begin, and the latest of them that has been read.
    private let refreshes = Locked((begun: 0, read: 0))

    /// - Parameter currentTime: The wall clock in Unix milliseconds.
    init(_ fixed: StaticKeys, registry: Registry, currentTime: @escaping @Sendable () -> Int64) {
        (self.fixed, self.registry, self.currentTime) = (fixed, registry, currentTime)
        table = Locked(KeyTable(fixed, Registry.Contents()))
    }

    /// Reads what has been changed, by whomever; then notes which keys were used, and for what.
    func refresh() async throws(StoreError) {
        let number = refreshes.withLock { refreshes in
            refreshes.begun += 1
            return refreshes.begun
        }
        let contents = try await registry.contents()
        let used: Set<Int32> = table.withLock { table in
            // One that began later has read later: what this one knows may have been changed since.
            let isLatest = refreshes.withLock { refreshes in
                defer { refreshes.read = max(refreshes.read, number) }
                return number > refreshes.read
            }
            guard isLatest else { return [] }
            defer { table = KeyTable(fixed, contents) }
            return table.takeUsed()
        }
        guard let today = CalendarDay(daysSince1970: Int32(clamping: currentTime() / 86_400_000)) else { return }
        // What cannot be noted now is noted with the next use: the table has what the store has.
        if !used.isEmpty { try? await registry.noteUse(of: used, on: today) }
        let counts = derived.withLock { $0.take() }
        guard !counts.isEmpty else { return }
        // Counts that cannot be noted now are noted with the next ones.
        do { try await registry.note(counts, on: today) } catch { derived.withLock { $0.add(counts) } }
    }

    /// - Parameter derived: How many events with derived ids a sender has sent, by their names.
    func note(_ names: [[UInt8]: Int], _ sender: Sender) { derived.withLock { $0.add(names, sender.projectID, keyID: sender.keyID) } }

    /// Whether nobody has made a key yet.
    var isEmpty: Bool { table.withLock { $0.isEmpty } }

    /// Whether one of the public keys is in use.
    var holdsDemoKeys: Bool { fixed.holdsDemoKeys }

    var projectNamesByID: [Int32: String] {
        Dictionary(table.withLock { $0.projects }.map { ($0.value, $0.key) }) { $1 }
    }

    /// The projects that an admin may choose from, sorted.
    var projectNames: [String] { table.withLock { $0.projects.keys }.sorted() }

    /// - Parameter authorization: The header field; the schemes `Bearer` and `Basic`, in any case.
    func sender(_ authorization: String?) throws(RequestProblem) -> Sender {
        try sender(key: Self.key(authorization) ?? "")
    }

    /// Whether pages of an origin may use some key.
    func isOrigin(_ origin: String) -> Bool { table.withLock { $0.origins }.contains(origin) }

    /// The same for other vendors' SDKs, which put the key where they want: the first place with a known one counts.
    ///
    /// - Parameter addresses: Keys that stand in the address, which proxies log: only public ones may.
    func sender(_ authorization: String?, inAddress addresses: [String]) throws(RequestProblem) -> Sender {
        var (found, refusal): (Sender?, RequestProblem?)
        for (key, isPublic) in addresses.map({ ($0, true) }) + [(Self.key(authorization) ?? "", false)] where !key.isEmpty {
            do throws(RequestProblem) {
                let sender = try sender(key: key, isPublic: isPublic)
                guard found?.projectID ?? sender.projectID == sender.projectID else {
                    throw RequestProblem(.otherProject, detail: "the request holds keys of two projects")
                }
                found = found ?? sender
            } catch {
                guard error.code == .unknownKey else { throw error }
                refusal = refusal ?? error
            }
        }
        if let found { return found }
        if let refusal { throw refusal }
        // Says whether there are no keys at all.
        return try sender(key: "")
    }

    /// - Parameter isPublic: Whether it stands where others can read it.
    func sender(key: String, isPublic: Bool = false) throws(RequestProblem) -> Sender {
        let holder = try holder(key: key)
        if isPublic, !holder.kind.isPublic {
            throw RequestProblem(
                .wrongKeyKind, detail: "only a write key or a browser key may stand in an address, which proxies write to their logs")
        }
        guard holder.kind.isPublic || holder.kind == .server, let projectID = holder.projectID else {
            throw RequestProblem(.wrongKeyKind, detail: "events are sent with a write key, a server key or a browser key")
        }
        return table.withLock {
            Sender(
                projectID: projectID, publicID: $0.publicID(of: projectID), derivedIDs: $0.derivedIDs(of: holder),
                isServer: holder.kind == .server,
                blocked: $0.blocked[projectID], keyID: holder.keyID, eventsPerSecond: $0.eventsPerSecond(of: projectID),
                origins: holder.origins)
        }
    }

    /// The holder of a key that may read; ``project(of:named:)`` gives the project.
    func reader(_ authorization: String?) throws(RequestProblem) -> Holder {
        let holder = try holder(authorization)
        switch holder.kind {
        case .read, .admin: return holder
        case .browser:
            throw RequestProblem(.wrongKeyKind, detail: "reading needs a read key; this is a browser key, which is in every page")
        case .write: throw RequestProblem(.wrongKeyKind, detail: "reading needs a read key; this is a write key, which is in every app")
        case .server: throw RequestProblem(.wrongKeyKind, detail: "reading needs a read key; this is a server key, which sends")
        }
    }

    /// - Parameter name: The project's name: required with an admin key of all projects, refused with a read key.
    func project(of reader: Holder, named name: String?) throws(RequestProblem) -> Int32 {
        if let projectID = reader.projectID {
            guard name == nil || reader.kind == .admin && name == projectNamesByID[projectID] else {
                throw RequestProblem.parameter("project", "is for an admin key of all projects; this key is for one")
            }
            return projectID
        }
        guard let projectID = name.flatMap({ name in table.withLock { $0.projects[name] } }) else {
            throw RequestProblem.parameter("project", "must name a project: \(projectNames.joined(separator: ", "))")
        }
        return projectID
    }

    /// The holder of an admin key, which may be for one project, or only read (``Admin``).
    func admin(_ authorization: String?) throws(RequestProblem) -> Holder {
        let holder = try holder(authorization)
        guard holder.kind == .admin else { throw RequestProblem(.wrongKeyKind, detail: "this needs an admin key") }
        return holder
    }

    /// For what concerns the whole store.
    func checkAdminOfAll(_ authorization: String?) throws(RequestProblem) {
        guard try admin(authorization).projectID == nil else {
            throw RequestProblem(.wrongKeyKind, detail: Registry.needsAll.text)
        }
    }

    static let firstKey = "there is no key yet: hapax-server projects add NAME makes some (with a SQLite store, while no server runs)"

    /// Whether an answer that takes long may go on: its key may have been revoked, or have expired.
    func isValid(_ holder: Holder) -> Bool { table.withLock { $0.isValid(holder, now: currentTime()) } }

    /// The project of a key that is known, for the log; this is no use of the key.
    func projectName(_ authorization: String?) -> String? {
        guard let key = Self.key(authorization) else { return nil }
        return table.withLock { $0.projectName(KeyDigest(key)) }
    }

    /// As a bearer (RFC 6750), or as the password of any name (RFC 7617), which is all that many BI tools can send; as the name, if the password is
    /// empty, which is how Segment's SDKs send it.
    private static func key(_ authorization: String?) -> String? {
        let parts = (authorization ?? "").split(separator: " ", maxSplits: 1)
        guard parts.count == 2 else { return nil }
        let credentials = String(parts[1].drop { $0 == " " })
        switch parts[0].lowercased() {
        case "bearer": return credentials
        case "basic":
            let pair = Data(base64Encoded: credentials).map { String(decoding: $0, as: UTF8.self) }
            let parts = pair?.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false) ?? []
            return parts.count < 2 ? nil : String(parts[1].isEmpty ? parts[0] : parts[1])
        default: return nil
        }
    }

    private func holder(_ authorization: String?) throws(RequestProblem) -> Holder { try holder(key: Self.key(authorization) ?? "") }

    private func holder(key: String) throws(RequestProblem) -> Holder {
        guard !AccessKey.isMistyped(key) else {
            throw RequestProblem(.unknownKey, detail: "this key is mistyped, or a part of one: its check sum does not fit")
        }
        let (digest, now) = (KeyDigest(key), currentTime())
        return try table.withLock { (table) throws(RequestProblem) in
            guard !table.isEmpty else {
                throw RequestProblem(.notSetUp, detail: Self.firstKey)
            }
            return try table.holder(digest, now: now)
        }
    }
}
