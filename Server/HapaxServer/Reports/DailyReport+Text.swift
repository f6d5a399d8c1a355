import HapaxModel

extension DailyReport {
    /// The form that docs/reading.md shows.
    func json() -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024 + days.count * 1_024)
        writer.object { writer in
            writer.member("query") { writer in
                writer.member("from", from.description)
                writer.member("to", to.description)
                writer.member("time_zone", zone.name)
                writer.member("basis", basis.rawValue)
            }
            writer.member("late_as_of", lateAsOf.map(ReportZone.utc.text))
            writer.member("days", list: days) { writer, day in writer.object { day.write(to: &$0) } }
            writer.member("warnings", list: onlyLate.map(Optional.some) + (isCountingLate ? [nil] : [])) { writer, day in
                writer.object { writer in
                    writer.member("code", day == nil ? "counting_late" : "only_late")
                    guard let day else { return }
                    writer.member("day", day.bounds.day.description)
                    writer.member("late", day.late)
                }
            }
        }
        return writer.bytes
    }

    /// A line is an event name of a day with its count; one line with an empty name counts all names beyond the commonest.
    func csvByEvent() -> [UInt8] {
        let lines = days.flatMap { day in
            (day.figures.byName + (day.figures.other > 0 ? [.init(event: "", count: day.figures.other)] : [])).map {
                [day.bounds.day.description, day.state.rawValue, $0.event, "\($0.count)"]
            }
        }
        return CSV.text([["day", "state", "event", "count"]] + lines)
    }

    /// A line is a day.
    func csv() -> [UInt8] {
        let titles = [
            "day", "state", "time_zone", "starts_at", "ends_at", "closes_at", "users", "active_users", "new_users", "sessions",
            "timed_sessions",
            "mean_session_ms", "mean_use_ms", "events", "late", "ahead",
        ]
        return CSV.text(
            [titles]
                + days.map { day in
                    [day.bounds.day.description, day.state.rawValue, day.bounds.zone.name] + day.instants
                        + day.numbers.map { $0.map { "\($0)" } ?? "" }
                })
    }
}

extension ReportZone {
    /// RFC 3339 with the zone's offset: `2026-11-22T00:00:00+01:00`; `Z` for an offset of 0.
    ///
    /// - Parameter seconds: Unix seconds.
    func text(_ seconds: Int64) -> String {
        let offset = offset(at: seconds)
        let local = Timestamp(clampingUnixMilliseconds: (seconds + offset) * 1_000).description.prefix(19)
        if offset == 0 { return local + "Z" }
        func two(_ number: Int64) -> String { (number < 10 ? "0" : "") + "\(number)" }
        // An offset has no seconds in RFC 3339; only zones of the distant past had some.
        return "\(local)\(offset < 0 ? "-" : "+")\(two(abs(offset) / 3_600)):\(two(abs(offset) / 60 % 60))"
    }
}

extension DailyReport.Day {
    fileprivate var instants: [String] {
        [bounds.starts, bounds.ends, bounds.closes].map { bounds.zone.text($0) }
    }

    /// In the order of the CSV.
    fileprivate var numbers: [Int64?] {
        [
            figures.users, figures.activeUsers, figures.newUsers, figures.sessions, figures.timedSessions, figures.meanSession,
            figures.meanUse,
            figures.events, late, figures.ahead,
        ]
    }

    fileprivate func write(to writer: inout JSONWriter) {
        writer.member("day", bounds.day.description)
        writer.member("state", state.rawValue)
        for (name, text) in zip(["starts_at", "ends_at", "closes_at"], instants) {
            writer.member(named: name)
            writer.string(text)
        }
        writer.member("time_zone", bounds.zone.name)
        let names = ["users", "active_users", "new_users", "sessions", "timed_sessions", "mean_session_ms", "mean_use_ms"]
        for (name, number) in zip(names, numbers) {
            writer.member(named: name)
            writer.optional(number)
        }
        writer.member("events") { writer in
            writer.member("total", figures.events)
            writer.member("by_name", list: figures.byName) { writer, name in
                writer.object { writer in
                    writer.member("event", name.event)
                    writer.member("count", name.count)
                }
            }
            writer.member("other", figures.other)
        }
        writer.member("late", late)
        writer.member("ahead", figures.ahead)
    }
}
