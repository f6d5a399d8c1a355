import HapaxModel

/// The table `projects`: a row each, with what clients call it (`public_id`), whose derived ids it takes, its limit (`events_per_second`), and
/// the key under which its blocked users are noted (`user_key`, ``BlockedUsers``).
extension Registry {
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

    /// By name, with their latest zones. What a later version of the program has written and this one cannot read is left out.
    func projects() async throws(StoreError) -> [Project] {
        try await database.ask(
            """
            SELECT p.project_id, name, public_id, derived_ids, events_per_second, z.time_zone, z.from_day FROM projects p
            LEFT JOIN report_zones z ON z.project_id = p.project_id
              AND from_day = (SELECT max(from_day) FROM report_zones l WHERE l.project_id = p.project_id)
            WHERE public_id IS NOT NULL ORDER BY name
            """, as: .own
        ).compactMap { Project($0) }
    }

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
            if try await ReportZones.zones(of: project.id, in: database, as: .own) == nil {
                _ = try await database.change([ReportZones.first(zone, of: project.id)], as: .owner)
            }
            // A server may have seen the project meanwhile, and have given it another one.
            guard let history = try await ReportZones.zones(of: project.id, in: database, as: .own),
                let present = try await database.ask("SELECT \(database.dialect.milliseconds(database.dialect.now(now)))", as: .own).first?[
                    0
                ]
                .flatMap({ Int64($0) })
            else { throw StoreError.unavailable("the project's time zone cannot be read") }
            if history.latest != zone {
                statements += ReportZones.change(history, to: zone, of: project.id, now: present / 1_000)
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
