import HapaxModel

/// The table `keys`: a row each, with the SHA-256 of the key (`digest`) and its first characters (`beginning`), never the key. `last_used` is a
/// day; `origins` are separated by blanks; a revoked key stays.
extension Registry {
    /// What is kept of a key. Times are Unix milliseconds.
    package struct Key: Sendable {
        package var id: Int32
        package var digest: KeyDigest
        package var beginning: String
        package var kind: KeyKind
        /// nil for an admin key of all projects.
        package var projectID: Int32?
        /// Of an admin key.
        package var isReadOnly = false
        package var name: String
        package var createdAt: Int64
        package var expiresAt: Int64?
        package var revokedAt: Int64?
        package var lastUsed: CalendarDay?
        /// Of a browser key; empty for others.
        package var origins: Origins

        /// - Parameter now: Unix milliseconds.
        package func state(at now: Int64) -> State {
            if revokedAt != nil { return .revoked }
            return expiresAt ?? .max <= now ? .expired : .active
        }
    }

    /// Whether a key works.
    package enum State: String, Sendable {
        case active, expired, revoked
    }

    /// In the order in which they were made. What cannot be read is of a kind that only a later version knows: no key of it is good here.
    func keys() async throws(StoreError) -> [Key] {
        let ms = database.dialect.milliseconds
        return try await database.ask(
            """
            SELECT key_id, digest, beginning, kind, project_id, name, \(ms("created_at")), \(ms("expires_at")), \(ms("revoked_at")), last_used,
              origins
            FROM keys ORDER BY key_id
            """, as: .own
        ).compactMap { Key($0) }
    }

    /// - Parameters:
    ///   - project: Its name; nil for an admin key of all projects.
    ///   - isReadOnly: For an admin key that sees everything and changes nothing.
    ///   - origins: For a browser key, at least one.
    ///   - value: A text that senders have already, as another vendor's token; only for keys that are public. nil makes a key.
    ///   - expiresAt: Unix milliseconds.
    /// - Returns: Also the key itself, which is kept nowhere.
    package func addKey(
        _ kind: KeyKind, project: String?, name: String = "", isReadOnly: Bool = false, origins: [String] = [], value: String? = nil,
        expiresAt: Int64? = nil, now: Int64
    ) async throws -> (key: Key, secret: String) {
        guard project != nil || kind == .admin else { throw Problem.invalid(parameter: "project", "must name the key's project") }
        guard !isReadOnly || kind == .admin else {
            throw Problem.invalid(parameter: "read_only", "is for an admin key; each other kind does one thing")
        }
        guard origins.isEmpty || kind == .browser else {
            throw Problem.invalid(parameter: "origins", "are for a browser key; the others are not for pages")
        }
        guard !origins.isEmpty || kind != .browser else { throw Self.needsOrigins }
        let origins = try Origins(origins)
        try Self.checkName(name)
        if let value {
            guard kind.isPublic else {
                throw Problem.invalid(parameter: "value", "is for a write key or a browser key; others are secret, and made here")
            }
            guard (ServerLimits.shortestKeyBytes...200).contains(value.utf8.count), value.utf8.allSatisfy({ (0x21...0x7E).contains($0) }),
                !value.hasPrefix("hapax_")
            else {
                throw Problem.invalid(
                    parameter: "value",
                    "must be \(ServerLimits.shortestKeyBytes) to 200 printable ASCII characters without blanks, and not begin with hapax_")
            }
            guard !keysInSettings.contains(KeyDigest(value)), try await !keys().contains(where: { $0.digest == KeyDigest(value) }) else {
                throw Problem.exists("there is such a key already")
            }
        }
        guard !keysInSettings.contains(KeyDigest(name)) else { throw Self.nameHoldsKey }
        var projectID: Int32?
        if let project { projectID = try await contents().project(named: project).id }
        return try await insert(
            kind, projectID, name: name, isReadOnly: isReadOnly, origins: origins, value: value, expiresAt: expiresAt, now: now)
    }

    private static let needsOrigins = Problem.invalid(
        parameter: "origins", "must name the pages that may use the key, as in https://shop.example")

    /// Replaces the origins of a browser key.
    package func setKey(_ id: Int32, origins: [String]) async throws -> Key {
        guard try await contents().key(id).kind == .browser else {
            throw Problem.invalid(parameter: "origins", "are for a browser key, and this is none")
        }
        guard !origins.isEmpty else { throw Self.needsOrigins }
        let stored = try Origins(origins).stored
        _ = try await database.change(["UPDATE keys SET origins = \(stored) WHERE key_id = \(id)"], as: .owner)
        return try await contents().key(id)
    }

    /// What began with it ends: streams and exports at once, a request that is arriving is still answered.
    package func revokeKey(_ id: Int32, now: Int64) async throws -> Key {
        let key = try await contents().key(id)
        guard key.revokedAt == nil else { return key }
        _ = try await database.change(
            ["UPDATE keys SET revoked_at = \(instant: now / 1_000) WHERE key_id = \(id) AND revoked_at IS NULL"], as: .owner)
        return try await contents().key(id)
    }

    /// Makes a key of the same kind, project and name; the old one expires.
    ///
    /// - Parameters:
    ///   - grace: How long the old one still works.
    ///   - expiresAt: When the new one ends, in Unix milliseconds; nil: it lasts as long as the old one was to, if that was to end.
    package func rotateKey(
        _ id: Int32, grace: Duration, expiresAt: Int64? = nil, now: Int64
    ) async throws -> (key: Key, secret: String, old: Key) {
        let known = try await contents()
        let old = try known.key(id)
        guard old.state(at: now) == .active else {
            throw Problem.invalid(parameter: "id", "is of a key that has been revoked or has expired: make a new one")
        }
        // After a rotation the old key's end is its grace's, which says nothing about how long the next one is to last.
        let newer = known.keys.last {
            $0.id > id && ($0.kind, $0.projectID, $0.isReadOnly, $0.name) == (old.kind, old.projectID, old.isReadOnly, old.name)
                && $0.state(at: now) == .active
        }
        if let newer, old.expiresAt != nil, expiresAt == nil {
            throw Problem.invalid(
                parameter: "id", "is of a key that ends, and key \(newer.id) has followed it: rotate that one, or say when the new one ends"
            )
        }
        let end = now + Int64(clamping: Int(grace / .milliseconds(1)))
        // Of two who rotate one key at once, the second finds the first one's new key once it has the lock.
        let (key, secret) = try await insert(
            old.kind, old.projectID, name: old.name, isReadOnly: old.isReadOnly, origins: old.origins,
            expiresAt: expiresAt ?? old.expiresAt.map { now + $0 - old.createdAt }, now: now,
            lock: ["SELECT 1 FROM keys WHERE key_id = \(id)\(database.dialect.lock)"],
            unless: "(SELECT max(key_id) FROM keys) > \(known.keys.last?.id ?? id)",
            and: { "UPDATE keys SET expires_at = \(instant: min(end, old.expiresAt ?? .max) / 1_000) WHERE key_id = \(id) AND \($0)" })
        return (key, secret, try await contents().key(id))
    }

    private func insert(
        _ kind: KeyKind, _ projectID: Int32?, name: String, isReadOnly: Bool, origins: Origins, value: String? = nil, expiresAt: Int64?,
        now: Int64, lock: [StoreSQL] = [],
        unless condition: StoreSQL = "false", and other: (_ ifMade: StoreSQL) -> StoreSQL? = { _ in nil }
    ) async throws -> (key: Key, secret: String) {
        var random = SystemRandomNumberGenerator()
        let secret = value ?? AccessKey.make(kind, using: &random)
        let digest = KeyDigest(secret)
        // What may do less than an admin key of all projects is of a kind that servers of an earlier version do not know, and so refuse.
        let stored = kind == .admin && isReadOnly ? Key.adminThatReads : kind == .admin && projectID != nil ? Key.adminOfOne : kind.rawValue
        let (project, end): (StoreSQL, StoreSQL) = (
            projectID.map { "\($0)" } ?? "NULL", expiresAt.map { "\(instant: $0 / 1_000)" } ?? "NULL"
        )
        let insert: StoreSQL = """
            INSERT INTO keys (digest, beginning, kind, project_id, name, created_at, expires_at, origins) SELECT
              \(digest.hex), \(AccessKey.beginning(secret)), \(stored), \(project), \(name), \(instant: now / 1_000), \(end),
              \(origins.stored)
            WHERE NOT (\(condition))
            """
        let isMade: StoreSQL = "EXISTS (SELECT 1 FROM keys WHERE digest = \(digest.hex))"
        try await database.change(lock + [insert] + [other(isMade)].compactMap { $0 }, as: .owner, isMade: isMade)
        guard let key = try await contents().keys.first(where: { $0.digest == digest }) else {
            throw Problem.exists("another key was made at the same moment, and nothing has been changed: look at the keys and try again")
        }
        return (key, secret)
    }

    func noteUse(of keys: Set<Int32>, on day: CalendarDay) async throws(StoreError) {
        let numbers = keys.dropFirst().reduce("\(keys.first ?? 0)" as StoreSQL) { "\($0), \($1)" }
        _ = try await database.change(
            ["UPDATE keys SET last_used = \(day) WHERE key_id IN (\(numbers)) AND (last_used IS NULL OR last_used < \(day))"], as: .own)
    }
}

extension Registry.Key {
    /// The column `kind` of an admin key that changes nothing, and of one that is for one project.
    fileprivate static let (adminThatReads, adminOfOne) = ("admin_reads", "admin_of_project")

    fileprivate init?(_ row: [String?]) {
        guard row.count == 11, let id = row[0].flatMap({ Int32($0) }), let digest = row[1].flatMap({ KeyDigest(hex: $0) }),
            let stored = row[3], let kind = [Self.adminThatReads, Self.adminOfOne].contains(stored) ? .admin : KeyKind(rawValue: stored)
        else { return nil }
        self.init(
            id: id, digest: digest, beginning: row[2] ?? "", kind: kind, projectID: row[4].flatMap { Int32($0) },
            isReadOnly: stored == Self.adminThatReads, name: row[5] ?? "",
            createdAt: row[6].flatMap { Int64($0) } ?? 0, expiresAt: row[7].flatMap { Int64($0) },
            revokedAt: row[8].flatMap { Int64($0) }, lastUsed: row[9].flatMap { CalendarDay($0) },
            origins: Origins(stored: row[10] ?? ""))
    }
}
