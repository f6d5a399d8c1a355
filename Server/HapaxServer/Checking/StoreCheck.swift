import HapaxModel

/// What can be said of a store that has all tables, whichever kind it is.
struct StoreCheck {
    let database: any SQLStore
    let reader: any EventReader
    /// Unix milliseconds.
    let now: Int64
    /// Whether the settings hold a key.
    let hasFixedKeys: Bool
    /// Whether each row is looked for.
    var isDeep = false

    /// How long a day may wait to be closed, in seconds.
    private static let closingPatience: Int64 = 30 * 60
    private static let backupHours: Int64 = 26
    private static let leastMonthsAhead = 3
    private static let leastRoom = 0.15

    func findings() async throws(StoreError) -> [Finding] {
        let figures = try await StoreWatch.Figures(database, reader, now: now, as: .own)
        return size(figures.overview) + [backup(figures.overview), days(figures)] + (try await keys()) + [try await retention()]
            + (try await erasures()) + (try await books(figures)) + (isDeep ? try await rows() : [])
    }

    private func books(_ figures: StoreWatch.Figures) async throws(StoreError) -> [Finding] {
        let missing = figures.missing.filter { $0.events > 0 }
        guard !missing.isEmpty else { return [.ok("books", "no number that a client has given is missing")] }
        return missing.map { .fail("books", "\($0.events) events of \($0.project) are missing", help: "hapax reconcile names them") }
    }

    /// Whether what the books say is stored is there.
    private func rows() async throws(StoreError) -> [Finding] {
        let lost = try await database.ask(StoredNumbers.lost(database.dialect), as: .owner)
        guard !lost.isEmpty else { return [.ok("rows", "each number that the books say is stored has its row")] }
        let names = Dictionary(try await Registry(database: database).contents().projects.map { ("\($0.id)", $0.name) }) { $1 }
        return lost.map { row in
            let numbers = row[2].flatMap { SequenceSet($0) } ?? SequenceSet()
            let some = numbers.ranges.prefix(20).map { $0.count == 1 ? "\($0.lowerBound)" : "\($0.lowerBound)–\($0.upperBound)" }
            return .fail(
                "rows",
                "install \(row[1] ?? "") of \(names[row[0] ?? ""] ?? "") lacks rows that it had, \(numbers.count) in all: "
                    + some.joined(separator: ", ") + (numbers.ranges.count > some.count ? ", …" : ""),
                help: "somebody has deleted them, or the database has lost them: look for them in a backup")
        }
    }

    private func size(_ overview: StoreOverview) -> [Finding] {
        var findings = [Finding.ok("store", "\(overview.version), \(Self.size(overview.bytes))")]
        if let (free, size) = overview.disk {
            let room = "\(Self.size(free)) of \(Self.size(size)) are free"
            findings.append(
                Double(free) < Self.leastRoom * Double(size)
                    ? .warn("disk", room, help: "make room, or let old months go: hapax-server retention set 25") : .ok("disk", room))
        }
        if let months = overview.monthsAhead {
            findings.append(
                months < Self.leastMonthsAhead
                    ? .warn("months", "\(months) made in advance", help: "set HAPAX_STORE_ADMIN at one server")
                    : .ok("months", "\(months) made in advance"))
        }
        return findings
    }

    private static func size(_ bytes: Int64) -> String {
        let units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
        let unit = min(max(0, (63 - bytes.leadingZeroBitCount) / 10), units.count - 1)
        return "\(bytes >> Int64(10 * unit)) \(units[unit])"
    }

    private func backup(_ overview: StoreOverview) -> Finding {
        let help = overview.monthsAhead == nil ? "hapax-server backup FILE" : "after each one: hapax-server backup --done"
        guard let last = overview.lastBackup else { return .warn("backup", "none has been noted", help: help) }
        let hours = (now - last) / 3_600_000
        let text = "the last one was made at \(Timestamp(clampingUnixMilliseconds: last))"
        return hours > Self.backupHours ? .warn("backup", text, help: help) : .ok("backup", text)
    }

    private func days(_ figures: StoreWatch.Figures) -> Finding {
        let late = figures.closingLag.filter { $0.seconds > Self.closingPatience }
        guard let worst = late.max(by: { $0.seconds < $1.seconds }) else { return .ok("days", "none waits to be closed") }
        return .warn(
            "days", "one of \(worst.project) should have been closed \(worst.seconds / 60) minutes ago",
            help: "a running server closes it; look at its log")
    }

    private func keys() async throws(StoreError) -> [Finding] {
        let contents = try await Registry(database: database).contents()
        let active = contents.keys.filter { $0.state(at: now) == .active }
        guard !active.isEmpty || hasFixedKeys else {
            return [.fail("keys", "there is none, so every request is answered 503", help: "hapax-server projects add NAME")]
        }
        let ending = active.filter { ($0.expiresAt ?? .max) < now + 14 * 86_400_000 }
        return [.ok("keys", "\(active.count) in the store; projects: \(contents.projects.map(\.name).joined(separator: ", "))")]
            + ending.map { key in
                let day = Timestamp(clampingUnixMilliseconds: key.expiresAt ?? 0).description.prefix(10)
                return .warn("keys", "key \(key.id) (\(key.beginning)…) ends on \(day)", help: "hapax-server keys rotate \(key.id)")
            }
    }

    private func retention() async throws(StoreError) -> Finding {
        let state = try await Retention(database: database).state()
        let kept = state.months.map { "\($0) months and the running one" } ?? "for ever"
        guard state.cleared < state.horizon else { return .ok("retention", kept) }
        return .warn(
            "retention", "\(kept); events before \(state.firstDay ?? "") are still being removed",
            help: "a server with the admin role does it, or hapax-server retention apply")
    }

    private func erasures() async throws(StoreError) -> [Finding] {
        let open = try await Erasures(database: database).open().filter { $0.askedAt < now - 60_000 }
        guard let first = open.first else { return [] }
        return [
            .warn(
                "erasures",
                "\(open.count) not done, the first was asked for at \(Timestamp(clampingUnixMilliseconds: first.askedAt))",
                help: "a server with the admin role does it; look at its log")
        ]
    }
}
