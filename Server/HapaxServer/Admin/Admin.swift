import HapaxModel

/// What an admin can see and change, over HTTP and on the command line.
package struct Admin: Sendable {
    let database: any SQLStore
    /// For what is missing in the books; nil beside a running server of the embedded store, where nothing can be changed.
    var store: (any EventStore)?
    /// What the settings of this program name, which counts more than the store.
    var settings = Settings()
    /// How long one statement may search.
    var patience = ServerLimits.ownWork
    /// The wall clock in Unix milliseconds.
    let now: Int64
    var caller = AdminCaller()
    /// Called with each user before an erasure of it is noted.
    var willErase: @Sendable (_ user: String) throws -> Void = { _ in }

    package struct Settings: Sendable {
        var projects: Set<String> = []
        /// Projects that have their time zone there.
        var zones: Set<String> = []
        var keys: Set<KeyDigest> = []
    }

    /// How long a key that was rotated still works, if nobody says.
    static let usualGrace = Duration.seconds(30 * 86_400)
    /// A hundred years.
    static let longest = Duration.seconds(36_500 * 86_400)
    /// Senders that are named in a refusal.
    private static let namedSenders = 5

    private func registry(_ database: any SQLStore) -> Registry {
        Registry(database: database, zonesInSettings: settings.zones, keysInSettings: settings.keys)
    }

    private func erasures(_ database: any SQLStore) -> Erasures {
        Erasures(database: database, inSettings: settings.projects, patience: patience)
    }

    // MARK: - Seeing

    /// Projects and keys, of one project alone if the caller is for one.
    func contents() async throws(StoreError) -> Registry.Contents {
        var contents = try await registry(database).contents()
        guard let own = caller.projectID else { return contents }
        contents.projects.removeAll { $0.id != own }
        contents.keys.removeAll { $0.projectID != own }
        return contents
    }

    func derivedEvents(of project: Registry.Project) async throws(StoreError) -> [Registry.DerivedEvents] {
        try await registry(database).derivedEvents(of: project, now: now)
    }

    /// At most ``ServerLimits/erasures``, in their order.
    func erasures(after: Int32) async throws(StoreError) -> [Erasures.Erasure] {
        try await erasures(database).list(after: after, project: caller.projectID)
    }

    /// See ``AuditLog/entries(before:project:)``.
    func audit(before: Int64?, project: String?) async throws -> [AuditLog.Entry] {
        var project = project
        if caller.projectID != nil {
            guard let own = try await contents().projects.first?.name else { return [] }
            if let project, project != own { throw Registry.Problem.notFound("there is no project of that name; there are: \(own)") }
            project = own
        }
        return try await AuditLog(database: database).entries(before: before, project: project)
    }

    func retention() async throws(StoreError) -> Retention.State { try await Retention(database: database).state() }

    /// Does an erasure that has begun, or waits for the server that does it.
    func finished(_ erasure: Erasures.Erasure, progress: @Sendable (Int64) -> Void) async throws -> Erasures.Erasure {
        try await erasures(database).finished(erasure, progress: progress)
    }

    /// The ids that `$identify` ties to a user.
    func links(project: String, user: String) async throws -> [Erasures.Link] {
        try await erasures(database).links(project: project, user: user)
    }

    // MARK: - Changing

    /// - Parameter saysYes: What is tried first (``AdminVerb/isTriedFirst``) is done.
    /// - Throws: ``Registry/Problem``, ``StoreError``.
    package func perform(_ verb: AdminVerb, saysYes: Bool) async throws -> AdminAnswer {
        let isTrial = verb.isTriedFirst && !saysYes
        let project = try await check(verb, isTrial: isTrial)
        if isTrial, let answer = try await tried(verb) { return answer }
        // A trial that has found nothing to warn of is no trial any more.
        if caller.isReadOnly { throw Self.onlyReads }
        if let project { try await checkIsKept(project, verb) }
        let actor = if let name = caller.name { name } else { try await contents().name(ofKey: caller.keyID) }
        return try await done(
            verb,
            AuditedStore(
                database,
                AuditLog.Entry(id: 0, at: now, actor: actor, keyID: caller.keyID, verb: verb.name, project: project, detail: verb.detail)))
    }

    /// Whether the caller may ask for that.
    ///
    /// - Returns: The name of the project that it concerns; nil for the whole store.
    private func check(_ verb: AdminVerb, isTrial: Bool) async throws -> String? {
        guard !caller.isReadOnly || isTrial else { throw Self.onlyReads }
        let visible = try await contents()
        let isOfOne = caller.projectID != nil
        func only(_ name: String?) throws -> String? {
            guard isOfOne else { return name }
            guard let name else { throw Registry.needsAll }
            return try visible.project(named: name).name
        }
        switch verb {
        case .addProject(let name, _), .removeProject(let name):
            if isOfOne { throw Registry.needsAll }
            return name
        case .setProject(let name, _, _, _), .erase(let name, _, _, _, _), .unblock(let name, _), .acceptLosses(let name, _):
            return try only(name)
        // Whose key it would be is missing: that is another fault.
        case .addKey(let kind, nil, _, _, _, _, _) where kind != .admin: return nil
        case .addKey(_, let project, _, _, _, _, _): return try only(project)
        case .rotateKey(let id, _, _), .setKey(let id, _), .revokeKey(let id):
            let key = try visible.key(id)
            return visible.projects.first { $0.id == key.projectID }?.name
        case .setRetention, .acceptClock, .applyRetention, .resetClock: return try only(nil)
        }
    }

    private static let onlyReads = Registry.Problem.notAllowed("this admin key only reads: it changes nothing")

    /// What is given to a project that is being removed would go with it.
    private func checkIsKept(_ project: String, _ verb: AdminVerb) async throws {
        if case .removeProject = verb { return }
        let going = try await erasures(database).open().filter(\.isOfProject).map(\.projectID)
        guard !going.isEmpty, let id = try await contents().projects.first(where: { $0.name == project })?.id, going.contains(id) else {
            return
        }
        throw Registry.Problem.exists("the project is being removed")
    }

    /// What a verb would do; nil if it takes nothing.
    private func tried(_ verb: AdminVerb) async throws -> AdminAnswer? {
        switch verb {
        case .setProject(let name, _, _, _):
            let contents = try await contents()
            let project = try contents.project(named: name)
            let senders = project.derivedIDs == .server ? [] : try await derivedEvents(of: project)
            guard !senders.isEmpty else { return nil }
            let names = senders.prefix(Self.namedSenders).map { sender in
                let name = sender.name.isEmpty ? "other events" : sender.name
                return "\(sender.events) of \(name) with \(contents.name(ofKey: sender.keyID)), last on \(sender.lastDay)"
            }
            let rest = senders.count > names.count ? ", and \(senders.count - names.count) more" : ""
            throw Registry.Problem.invalid(
                parameter: "derived_ids",
                "has not been set, nor anything else. In the last 14 days came with write keys, and would be refused: "
                    + "\(names.joined(separator: "; "))\(rest). Give these senders a server key first, or say yes: their events become dead letters"
            )
        case .removeProject(let name):
            let contents = try await contents()
            let id = try contents.project(named: name).id
            return .wouldErase(
                try await erasures(database).preview(project: name, user: nil), links: [],
                keys: contents.keys.count { $0.projectID == id && $0.state(at: now) == .active })
        case .erase(let project, let user, let linked, _, _):
            let links = linked ? try await links(project: project, user: user) : []
            return .wouldErase(try await erasures(database).preview(project: project, user: user), links: links, keys: nil)
        case .acceptLosses(let project, let install): return .losses(try await accept(project, install, isTrial: true), isTrial: true)
        case .setRetention(let months):
            return .wouldRemove(try await Retention(database: database, patience: patience).preview(months: months))
        default: return nil
        }
    }

    private func done(_ verb: AdminVerb, _ database: AuditedStore) async throws -> AdminAnswer {
        let (registry, erasures) = (registry(database), erasures(database))
        switch verb {
        case .addProject(let name, let zone): return .project(try await registry.addProject(name, timeZone: zone))
        case .setProject(let name, let derivedIDs, let limit, let zone):
            return .project(try await registry.set(name, derivedIDs: derivedIDs, eventsPerSecond: limit, timeZone: zone, now: now))
        case .removeProject(let name): return .erasing([try await erasures.add(project: name, user: nil)], links: [])
        case .addKey(let kind, let project, let name, let isReadOnly, let origins, let value, let lasts):
            let (key, secret) = try await registry.addKey(
                kind, project: project, name: name, isReadOnly: isReadOnly, origins: origins, value: value, expiresAt: try end(lasts),
                now: now)
            return .key(key, secret: secret)
        case .setKey(let id, let origins): return .key(try await registry.setKey(id, origins: origins))
        case .rotateKey(let id, let grace, let lasts):
            let grace = grace ?? Self.usualGrace
            guard grace >= .zero, grace <= Self.longest else {
                throw Registry.Problem.invalid(parameter: "grace_days", "must be a number of days from 0 to 36500")
            }
            let (key, secret, old) = try await registry.rotateKey(id, grace: grace, expiresAt: try end(lasts), now: now)
            return .key(key, secret: secret, replaces: old)
        case .revokeKey(let id): return .key(try await registry.revokeKey(id, now: now))
        case .erase(let project, let user, let linked, let blocks, let upTo):
            try await erasures.checked(project, user)
            let links = linked ? try await erasures.links(project: project, user: user) : []
            var begun: [Erasures.Erasure] = []
            // The user comes last, so that after an interruption the links are still found.
            for user in links.filter({ !$0.isShared }).map(\.user) + [user] {
                try willErase(user)
                begun.append(try await erasures.add(project: project, user: user, upTo: upTo, blocks: blocks))
            }
            return .erasing(begun, links: links)
        case .unblock(let project, let user):
            try await erasures.unblock(project: project, user: user)
            return .unblocked(project: project)
        case .acceptLosses(let project, let install):
            guard try await accept(project, install, isTrial: true) > 0 else { return .losses(0, isTrial: false) }
            try await note(database)
            return .losses(try await accept(project, install, isTrial: false), isTrial: false)
        case .setRetention(let months): return .retention(try await Retention(database: database).set(months: months))
        case .applyRetention:
            try await Retention(database: database).advance()
            return .retention(try await retention())
        case .acceptClock: return .clock(try await ClockMarks(database: database).accept(now: now))
        case .resetClock: return .clockReset(try await ClockMarks(database: database).reset(now: now))
        }
    }

    /// What is done without a statement of the owner's is noted before.
    private func note(_ database: AuditedStore) async throws(StoreError) {
        _ = try await self.database.change([AuditLog(database: self.database).noting(database.entry)], as: .own)
    }

    private func accept(_ project: String, _ install: String?, isTrial: Bool) async throws -> Int64 {
        let install = try install.map { text in
            guard let id = EventID(uuidString: text) else { throw Registry.Problem.invalid(parameter: "install", "must be a UUID") }
            return id
        }
        guard let store else { throw StoreError.notPermitted }
        return try await Losses(store: store).accept(project: project, install: install, isDryRun: isTrial)
    }

    private func end(_ lasts: Duration?) throws -> Int64? {
        guard let lasts else { return nil }
        guard lasts > .zero, lasts <= Self.longest else {
            throw Registry.Problem.invalid(parameter: "expires_in_days", "must be a number of days from 1 to 36500")
        }
        return now + Int64(lasts / .milliseconds(1))
    }
}
