import Foundation
import HapaxModel

/// The projects and keys in the store. Every server reads them every two seconds, so that a change needs no restart; the admin's paths and the
/// command line change them.
package struct Registry: Sendable {
    let database: any SQLStore
    /// Projects whose time zones the settings of this program name.
    var zonesInSettings: Set<String> = []
    /// The keys that the settings of this program name.
    var keysInSettings: Set<KeyDigest> = []

    /// Whose derived ids a project takes.
    package enum DerivedIDs: String, CaseIterable, Sendable {
        /// Any sender's.
        case any
        /// Those that come with a server key, so that nobody occupies a service's ids with the key of an app.
        case server
    }

    package struct Project: Sendable {
        package var id: Int32
        package var name: String
        /// Names the project to clients. Another database's project of the same name has another one.
        package var publicID: String
        package var derivedIDs: DerivedIDs
        /// What each server takes of it; nil: as many as it can.
        package var eventsPerSecond: Int?
        /// The latest; nil until a server has seen the project.
        package var timeZone: String?
        /// From which day on that holds.
        package var timeZoneFrom: CalendarDay?
    }

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

    package struct Contents: Sendable {
        /// By name.
        package var projects: [Project] = []
        /// In the order in which they were made.
        package var keys: [Key] = []
        /// By projects; nobody of a project that is missing.
        package var blocked: [Int32: BlockedUsers] = [:]

        func project(named name: String) throws(Problem) -> Project {
            guard let project = projects.first(where: { $0.name == name }) else {
                let names = projects.map(\.name).joined(separator: ", ")
                throw .notFound("there is no project of that name; there are: \(names.isEmpty ? "none" : names)")
            }
            return project
        }

        /// For people.
        func name(ofKey id: Int32?) -> String {
            guard let id else { return "a key of the settings" }
            let name = keys.first { $0.id == id }?.name ?? ""
            return "key \(id)\(name.isEmpty ? "" : " (\(name))")"
        }

        func key(_ id: Int32) throws(Problem) -> Key {
            guard let key = keys.first(where: { $0.id == id }) else { throw .notFound("there is no key with that number") }
            return key
        }
    }

    /// Why something was not changed. The texts hold no key.
    package enum Problem: Error, Hashable {
        case notFound(String)
        case exists(String)
        /// The key is not for that.
        case notAllowed(String)
        /// The value of a parameter cannot be used.
        case invalid(parameter: String, String)

        var text: String {
            switch self {
            case .notFound(let text), .exists(let text), .notAllowed(let text): text
            case .invalid(let parameter, let text): "\(parameter) \(text)"
            }
        }
    }

    static let needsAll = Problem.notAllowed("this concerns all projects, and the admin key is for one")

    // MARK: - Reading

    package func contents() async throws(StoreError) -> Contents {
        let ms = database.dialect.milliseconds
        let projects = try await database.ask(
            """
            SELECT p.project_id, name, public_id, derived_ids, events_per_second, z.time_zone, z.from_day FROM projects p
            LEFT JOIN report_zones z ON z.project_id = p.project_id
              AND from_day = (SELECT max(from_day) FROM report_zones l WHERE l.project_id = p.project_id)
            WHERE public_id IS NOT NULL ORDER BY name
            """, as: .own)
        let keys = try await database.ask(
            """
            SELECT key_id, digest, beginning, kind, project_id, name, \(ms("created_at")), \(ms("expires_at")), \(ms("revoked_at")), last_used
            FROM keys ORDER BY key_id
            """, as: .own)
        // What cannot be read is of a kind that only a later version knows: no key of it is good here.
        var contents = Contents(projects: projects.compactMap { Project($0) }, keys: keys.compactMap { Key($0) })
        for row in try await database.ask(
            "SELECT b.project_id, p.user_key, b.digest FROM blocked_users b JOIN projects p ON p.project_id = b.project_id", as: .own)
        {
            let id = Int32(clamping: try row.number(0))
            // Who is blocked must not come in since it cannot be read who that is.
            guard let key = row[1], let digest = row[2] else { throw .unavailable("the blocked users cannot be read") }
            contents.blocked[id, default: BlockedUsers(key: key)].insert(hex: digest)
        }
        return contents
    }

    /// Events with derived ids that came with a write key, in the last days.
    package struct DerivedEvents: Sendable {
        package var name: String
        /// nil for a key of the settings.
        package var keyID: Int32?
        package var events: Int64
        package var lastDay: String
    }

    /// What a project would refuse if it took derived ids from server keys only: what came in the last 14 days, most first.
    package func derivedEvents(of project: Project, now: Int64) async throws(StoreError) -> [DerivedEvents] {
        try await database.ask(
            """
            SELECT event, key_id, sum(count), max(day) FROM (
              SELECT event, key_id, count, day FROM derived_ids WHERE project_id = \(project.id) AND day > \(Self.firstDay(now))
              LIMIT \(DerivedIDCounts.readRows)
            ) AS d GROUP BY event, key_id ORDER BY sum(count) DESC, event, key_id LIMIT \(DerivedIDCounts.maximumSources)
            """, as: .own
        ).map { (row) throws(StoreError) in
            let keyID = Int32(clamping: try row.number(1))
            // The columns are NOT NULL.
            return DerivedEvents(
                name: row[0] ?? "", keyID: keyID == 0 ? nil : keyID, events: try row.number(2), lastDay: row[3] ?? "")
        }
    }

    private static func firstDay(_ now: Int64) -> String {
        CalendarDay(daysSince1970: max(Int32(clamping: now / 86_400_000) - DerivedIDCounts.days, 0))?.description ?? ""
    }

    // MARK: - Changing

    /// - Parameter timeZone: Of all its days; nil for UTC, or what the settings say.
    package func addProject(_ name: String, timeZone: String? = nil) async throws -> Project {
        try Self.checkName(name)
        guard try await !contents().projects.contains(where: { $0.name == name }) else { throw Self.projectExists }
        let zone = try timeZone.map { try self.zone($0, of: name) }
        // It stands in settings and in paths.
        guard !name.isEmpty, name != ".", name != "..", !name.contains(where: { ",=\"'/".contains($0) }) else {
            throw Problem.invalid(parameter: "name", "must be a text of 1 to 64 bytes without commas, =, / and quotation marks")
        }
        var random = SystemRandomNumberGenerator()
        let text = String(UInt64.random(in: 0 ... .max, using: &random), radix: 16)
        let publicID = String(repeating: "0", count: 16 - text.count) + text
        // With its zone in one transaction: a server that saw it without one would give it UTC.
        let zones: [StoreSQL] =
            zone.map { zone in
                [
                    """
                    INSERT INTO report_zones (project_id, from_day, time_zone)
                    SELECT project_id, \(CalendarDay.first), \(zone.name) FROM projects WHERE public_id = \(publicID)
                    """
                ]
            } ?? []
        try await database.change(
            ["INSERT INTO projects (name, public_id) VALUES (\(name), \(publicID)) ON CONFLICT DO NOTHING"] + zones, as: .owner,
            isMade: "EXISTS (SELECT 1 FROM projects WHERE public_id = \(publicID))")
        let project = try await contents().project(named: name)
        // Of two who add it at once, one has added it.
        guard project.publicID == publicID else { throw Self.projectExists }
        return project
    }

    private static let projectExists = Problem.exists("there is a project of that name")

    /// Sets all that is given, or nothing.
    ///
    /// - Parameters:
    ///   - eventsPerSecond: 0 for no limit.
    ///   - timeZone: Where the project's days begin, from the first day on that has not been planned yet.
    ///   - now: Unix milliseconds, for a store without a clock of its own.
    package func set(
        _ name: String, derivedIDs: DerivedIDs? = nil, eventsPerSecond: Int? = nil, timeZone: String? = nil, now: Int64
    ) async throws -> Project {
        let zone = try timeZone.map { try self.zone($0, of: name) }
        let project = try await contents().project(named: name)
        guard derivedIDs != nil || eventsPerSecond != nil || zone != nil else {
            throw Problem.invalid(parameter: "body", "must name what to set: derived_ids, events_per_second, time_zone")
        }
        var statements: [StoreSQL] = []
        // What is so already is no change.
        if let derivedIDs, derivedIDs != project.derivedIDs {
            statements.append("UPDATE projects SET derived_ids = \(derivedIDs.rawValue) WHERE project_id = \(project.id)")
        }
        if let eventsPerSecond {
            guard (0...1_000_000_000).contains(eventsPerSecond) else {
                throw Problem.invalid(parameter: "events_per_second", "must be a number from 1 to 1000000000, or 0 for no limit")
            }
            let limit: StoreSQL = eventsPerSecond == 0 ? "NULL" : "\(eventsPerSecond)"
            if eventsPerSecond != project.eventsPerSecond ?? 0 {
                statements.append("UPDATE projects SET events_per_second = \(limit) WHERE project_id = \(project.id)")
            }
        }
        if let zone {
            if try await DayClosing.zones(of: project.id, in: database, as: .own) == nil {
                _ = try await database.change([DayClosing.first(zone, of: project.id)], as: .owner)
            }
            // A server may have seen the project meanwhile, and have given it another one.
            guard let history = try await DayClosing.zones(of: project.id, in: database, as: .own),
                let present = try await database.ask("SELECT \(database.dialect.milliseconds(database.dialect.now(now)))", as: .own).first?[
                    0
                ]
                .flatMap({ Int64($0) })
            else { throw StoreError.unavailable("the project's time zone cannot be read") }
            if history.latest != zone {
                statements += DayClosing.change(history, to: zone, of: project.id, now: present / 1_000)
            }
        }
        if !statements.isEmpty { _ = try await database.change(statements, as: .owner) }
        return try await contents().project(named: name)
    }

    private func zone(_ zoneName: String, of name: String) throws(Problem) -> ReportZone {
        guard let zone = ReportZone(zoneName) else {
            throw .invalid(parameter: "time_zone", "must be a name of the time zone database, such as Europe/Berlin or UTC")
        }
        guard !zonesInSettings.contains(name) else {
            throw .invalid(
                parameter: "time_zone", "of this project stands in the settings (HAPAX_TIME_ZONES), which count more: change it there")
        }
        return zone
    }

    /// - Parameters:
    ///   - project: Its name; nil for an admin key of all projects.
    ///   - isReadOnly: For an admin key that sees everything and changes nothing.
    ///   - expiresAt: Unix milliseconds.
    /// - Returns: Also the key itself, which is kept nowhere.
    package func addKey(
        _ kind: KeyKind, project: String?, name: String = "", isReadOnly: Bool = false, expiresAt: Int64? = nil, now: Int64
    ) async throws -> (key: Key, secret: String) {
        guard project != nil || kind == .admin else { throw Problem.invalid(parameter: "project", "must name the key's project") }
        guard !isReadOnly || kind == .admin else {
            throw Problem.invalid(parameter: "read_only", "is for an admin key; each other kind does one thing")
        }
        try Self.checkName(name)
        guard !keysInSettings.contains(KeyDigest(name)) else { throw Self.nameHoldsKey }
        var projectID: Int32?
        if let project { projectID = try await contents().project(named: project).id }
        return try await insert(kind, projectID, name: name, isReadOnly: isReadOnly, expiresAt: expiresAt, now: now)
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
            old.kind, old.projectID, name: old.name, isReadOnly: old.isReadOnly,
            expiresAt: expiresAt ?? old.expiresAt.map { now + $0 - old.createdAt }, now: now,
            lock: ["SELECT 1 FROM keys WHERE key_id = \(id)\(database.dialect.lock)"],
            unless: "(SELECT max(key_id) FROM keys) > \(known.keys.last?.id ?? id)",
            and: { "UPDATE keys SET expires_at = \(instant: min(end, old.expiresAt ?? .max) / 1_000) WHERE key_id = \(id) AND \($0)" })
        return (key, secret, try await contents().key(id))
    }

    private func insert(
        _ kind: KeyKind, _ projectID: Int32?, name: String, isReadOnly: Bool, expiresAt: Int64?, now: Int64, lock: [StoreSQL] = [],
        unless condition: StoreSQL = "false", and other: (_ ifMade: StoreSQL) -> StoreSQL? = { _ in nil }
    ) async throws -> (key: Key, secret: String) {
        var random = SystemRandomNumberGenerator()
        let secret = AccessKey.make(kind, using: &random)
        let digest = KeyDigest(secret)
        // What may do less than an admin key of all projects is of a kind that servers of an earlier version do not know, and so refuse.
        let stored = kind == .admin && isReadOnly ? Key.adminThatReads : kind == .admin && projectID != nil ? Key.adminOfOne : kind.rawValue
        let (project, end): (StoreSQL, StoreSQL) = (
            projectID.map { "\($0)" } ?? "NULL", expiresAt.map { "\(instant: $0 / 1_000)" } ?? "NULL"
        )
        let insert: StoreSQL = """
            INSERT INTO keys (digest, beginning, kind, project_id, name, created_at, expires_at) SELECT
              \(digest.hex), \(AccessKey.beginning(secret)), \(stored), \(project), \(name), \(instant: now / 1_000), \(end)
            WHERE NOT (\(condition))
            """
        let isMade: StoreSQL = "EXISTS (SELECT 1 FROM keys WHERE digest = \(digest.hex))"
        try await database.change(lock + [insert] + [other(isMade)].compactMap { $0 }, as: .owner, isMade: isMade)
        guard let key = try await contents().keys.first(where: { $0.digest == digest }) else {
            throw Problem.exists("another key was made at the same moment, and nothing has been changed: look at the keys and try again")
        }
        return (key, secret)
    }

    /// Names are shown in terminals and lists: what cannot be seen, or turns what stands beside it, is in none.
    private static func checkName(_ name: String) throws {
        let hidden: [Unicode.GeneralCategory] = [.control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .unassigned]
        guard name.utf8.count <= 64, name.first?.isWhitespace != true, name.last?.isWhitespace != true,
            !name.unicodeScalars.contains(where: { hidden.contains($0.properties.generalCategory) })
        else { throw Problem.invalid(parameter: "name", "must be a text of at most 64 bytes that can be seen, without blanks around it") }
        // Names stand in lists, answers and backups.
        guard name.firstMatch(of: /hapax_[wsra]_[0-9A-Za-z]{8}/) == nil else { throw nameHoldsKey }
    }

    private static let nameHoldsKey = Problem.invalid(parameter: "name", "holds a key, which must be written down nowhere")

    func note(_ counts: [DerivedIDCounts.Source: Int64], on day: CalendarDay) async throws(StoreError) {
        let rows = counts.map { source, count -> StoreSQL in
            """
            (CAST(\(source.projectID) AS integer), CAST(\(day) AS text), CAST(\(source.keyID ?? 0) AS integer), CAST(\(source.name) AS text), \
            CAST(\(count) AS bigint))
            """
        }
        guard let first = rows.first else { return }
        // The rows of a project's day are counted up to the limit, and no further.
        _ = try await database.change(
            [
                """
                WITH n (project_id, day, key_id, event, count) AS (VALUES \(rows.dropFirst().reduce(first) { "\($0), \($1)" })),
                named AS (
                  SELECT n.project_id, n.day, n.key_id, n.count, CASE WHEN k.event IS NOT NULL OR (
                    SELECT count(*) FROM (
                      SELECT 1 FROM derived_ids o WHERE o.project_id = n.project_id AND o.day = n.day LIMIT \(DerivedIDCounts.maximumSources)
                    ) AS c) + row_number() OVER (PARTITION BY n.project_id, k.event IS NULL ORDER BY n.count DESC, n.event)
                    <= \(DerivedIDCounts.maximumSources) THEN n.event ELSE '' END AS event
                  FROM n LEFT JOIN derived_ids k
                    ON k.project_id = n.project_id AND k.day = n.day AND k.key_id = n.key_id AND k.event = n.event
                )
                INSERT INTO derived_ids (project_id, day, key_id, event, count)
                SELECT project_id, day, key_id, event, sum(count) FROM named WHERE true GROUP BY project_id, day, key_id, event
                ON CONFLICT (project_id, day, key_id, event) DO UPDATE SET count = derived_ids.count + excluded.count
                """
            ], as: .own)
        _ = try await database.change(
            ["DELETE FROM derived_ids WHERE day <= \(Self.firstDay(Int64(day.daysSince1970) * 86_400_000))"], as: .own)
    }

    func noteUse(of keys: Set<Int32>, on day: CalendarDay) async throws(StoreError) {
        let numbers = keys.dropFirst().reduce("\(keys.first ?? 0)" as StoreSQL) { "\($0), \($1)" }
        _ = try await database.change(
            ["UPDATE keys SET last_used = \(day) WHERE key_id IN (\(numbers)) AND (last_used IS NULL OR last_used < \(day))"], as: .own)
    }
}

extension Registry.Project {
    fileprivate init?(_ row: [String?]) {
        guard row.count == 7, let id = row[0].flatMap({ Int32($0) }), let name = row[1], let publicID = row[2],
            let derivedIDs = row[3].flatMap({ Registry.DerivedIDs(rawValue: $0) })
        else { return nil }
        self.init(
            id: id, name: name, publicID: publicID, derivedIDs: derivedIDs, eventsPerSecond: row[4].flatMap { Int($0) },
            timeZone: row[5], timeZoneFrom: row[6].flatMap { CalendarDay($0) })
    }
}

extension Registry.Key {
    /// The column `kind` of an admin key that changes nothing, and of one that is for one project.
    fileprivate static let (adminThatReads, adminOfOne) = ("admin_reads", "admin_of_project")

    fileprivate init?(_ row: [String?]) {
        guard row.count == 10, let id = row[0].flatMap({ Int32($0) }), let digest = row[1].flatMap({ KeyDigest(hex: $0) }),
            let stored = row[3], let kind = [Self.adminThatReads, Self.adminOfOne].contains(stored) ? .admin : KeyKind(rawValue: stored)
        else { return nil }
        self.init(
            id: id, digest: digest, beginning: row[2] ?? "", kind: kind, projectID: row[4].flatMap { Int32($0) },
            isReadOnly: stored == Self.adminThatReads, name: row[5] ?? "",
            createdAt: row[6].flatMap { Int64($0) } ?? 0, expiresAt: row[7].flatMap { Int64($0) },
            revokedAt: row[8].flatMap { Int64($0) }, lastUsed: row[9].flatMap { CalendarDay($0) })
    }
}
