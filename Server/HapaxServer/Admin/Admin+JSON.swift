import HapaxModel

extension JSONWriter {
    mutating func members(of answer: AdminAnswer, in contents: Registry.Contents, now: Int64) {
        switch answer {
        case .project(let project): members(of: project)
        case .key(let key, let secret, let replaced):
            if let secret { member("key", secret) }
            members(of: key, in: contents, now: now)
            if let replaced { member("replaces", object: { $0.members(of: replaced, in: contents, now: now) }) }
        case .wouldErase(let preview, let links, let keys):
            member("dry_run", true)
            member("events", preview.rows)
            member("first_received_at", preview.first.map { Timestamp(clampingUnixMilliseconds: $0).description })
            member("last_received_at", preview.last.map { Timestamp(clampingUnixMilliseconds: $0).description })
            if let keys { member("keys", keys) }
            member("linked", list: links) { writer, link in
                writer.object { writer in
                    writer.member("user", link.user)
                    writer.member("events", link.rows)
                    writer.member("stays", link.isShared)
                }
            }
        case .erasing(let begun, _):
            guard let erasure = begun.last else { return }
            members(of: erasure, in: contents)
            if !erasure.isOfProject { member("linked_erasures", list: begun.dropLast()) { writer, erasure in writer.integer(erasure.id) } }
        case .unblocked(let project): member("project", project)
        case .losses(let count, let isTrial):
            if isTrial { member("dry_run", true) }
            member("events", count)
        case .wouldRemove(let preview):
            member("dry_run", true)
            members(of: preview)
        case .retention(let state): members(of: state)
        case .clock(let shown): member("clock", Timestamp(clampingUnixMilliseconds: shown).description)
        case .clockReset(let reset): member("clock", Timestamp(clampingUnixMilliseconds: reset.now).description)
        }
    }

    mutating func members(ofProjects contents: Registry.Contents, _ derived: [Int32: [Registry.DerivedEvents]]) {
        member("projects", list: contents.projects) { writer, project in
            writer.object { writer in
                writer.members(of: project)
                writer.member("blocked_users", contents.blocked[project.id]?.count ?? 0)
                writer.member("derived_ids_with_write_keys", list: derived[project.id] ?? []) { writer, events in
                    writer.object { writer in
                        writer.member("event", events.name)
                        writer.member("key", events.keyID)
                        writer.member("events", events.events)
                        writer.member("last_day", events.lastDay)
                    }
                }
            }
        }
    }

    mutating func members(of entries: [AuditLog.Entry]) {
        member("audit", list: entries) { writer, entry in
            writer.object { writer in
                writer.member("id", entry.id)
                writer.member("at", Timestamp(clampingUnixMilliseconds: entry.at).description)
                writer.member("by", entry.actor)
                writer.member("key", entry.keyID)
                writer.member("verb", entry.verb)
                writer.member("project", entry.project)
                writer.member("detail", entry.detail)
            }
        }
    }

    mutating func members(of project: Registry.Project) {
        member("project", project.name)
        member("public_id", project.publicID)
        member("derived_ids", project.derivedIDs.rawValue)
        member("events_per_second", project.eventsPerSecond)
        member("time_zone", project.timeZone ?? "UTC")
        member("time_zone_from", project.timeZoneFrom == .first ? nil : project.timeZoneFrom?.description)
    }

    /// Never the user's id.
    mutating func members(of erasure: Erasures.Erasure, in contents: Registry.Contents) {
        member("erasure", erasure.id)
        member("project", contents.projects.first { $0.id == erasure.projectID }?.name)
        if erasure.isOfProject { member("removes_project", true) }
        member("state", erasure.doneAt == nil ? "running" : "done")
        member("events", erasure.rows)
        member("asked_at", Timestamp(clampingUnixMilliseconds: erasure.askedAt).description)
        member("done_at", erasure.doneAt.map { Timestamp(clampingUnixMilliseconds: $0).description })
    }

    mutating func members(of state: Retention.State) {
        member("months", state.months)
        member("kept_from", state.firstDay)
        member("state", state.cleared < state.horizon ? "removing" : "done")
    }

    mutating func members(of preview: Retention.Preview) {
        member("kept_from", Retention.firstDay(preview.horizon))
        member("would_remove", list: preview.months) { writer, part in
            writer.object { writer in
                writer.member("month", part.month)
                writer.member("events", part.events)
            }
        }
        member("undated_events", preview.undated)
    }

    mutating func members(of key: Registry.Key, in contents: Registry.Contents, now: Int64) {
        member("id", key.id)
        member("beginning", key.beginning)
        member("kind", key.kind.rawValue)
        if key.isReadOnly { member("read_only", true) }
        member("project", contents.projects.first { $0.id == key.projectID }?.name)
        member("name", key.name)
        if key.kind == .browser { member("origins", list: key.origins.texts) { $0.string($1) } }
        member("state", key.state(at: now).rawValue)
        member("created_at", Timestamp(clampingUnixMilliseconds: key.createdAt).description)
        member("expires_at", key.expiresAt.map { Timestamp(clampingUnixMilliseconds: $0).description })
        member("revoked_at", key.revokedAt.map { Timestamp(clampingUnixMilliseconds: $0).description })
        member("last_used", key.lastUsed?.description)
    }
}
