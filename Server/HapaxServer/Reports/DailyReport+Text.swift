import HapaxModel

extension DailyReport {
    /// As READS.md shows it.
    func json() -> [UInt8] {
        var writer = JSONWriter(capacity: 1_024 + days.count * 1_024)
        writer.raw(#"{"query":{"from":"#)
        writer.string(from.description)
        writer.raw(#","to":"#)
        writer.string(to.description)
        writer.raw(#","time_zone":"#)
        writer.string(zone.name)
        writer.raw(#","basis":"#)
        writer.string(basis.rawValue)
        writer.raw(#"},"late_as_of":"#)
        writer.optional(lateAsOf.map { Self.instant($0, .utc) })
        writer.raw(#","days":"#)
        writer.list(days) { writer, day in day.write(to: &writer) }
        writer.raw(#","warnings":"#)
        writer.list(onlyLate.map(Optional.some) + (isCountingLate ? [nil] : [])) { writer, day in
            guard let day else { return writer.raw(#"{"code":"counting_late"}"#) }
            writer.raw(#"{"code":"only_late","day":"#)
            writer.string(day.bounds.day.description)
            writer.raw(#","late":"#)
            writer.integer(day.late)
            writer.raw("}")
        }
        writer.raw("}")
        return writer.bytes
    }

    /// RFC 4180. A line is a name of a day's events with their count; of those that are not among the commonest the name is empty.
    func csvByEvent() -> [UInt8] {
        var lines = ["day,state,event,count"]
        for day in days {
            let names = day.figures.byName + (day.figures.other > 0 ? [.init(event: "", count: day.figures.other)] : [])
            lines += names.map { "\(day.bounds.day),\(day.state.rawValue),\(Self.cell($0.event)),\($0.count)" }
        }
        return Array(lines.map { $0 + "\r\n" }.joined().utf8)
    }

    /// A text that was sent: it commands no terminal, breaks no line, and no spreadsheet takes it for a formula.
    private static func cell(_ text: String) -> String {
        let isFormula = text.unicodeScalars.first.map { ["=", "+", "-", "@"].contains($0) } == true
        let scalars = text.printable.unicodeScalars.flatMap { $0 == "\"" ? [$0, $0] : [$0] }
        let cell = (isFormula ? "'" : "") + String(String.UnicodeScalarView(scalars))
        return scalars.contains { [",", "\""].contains($0) } ? "\"\(cell)\"" : cell
    }

    /// RFC 4180. A line is a day; no cell holds anything that was sent, so none has to be quoted, or kept from being taken for a formula.
    func csv() -> [UInt8] {
        var lines = [
            "day,state,time_zone,starts_at,ends_at,closes_at,users,active_users,new_users,sessions,timed_sessions,mean_session_ms,mean_use_ms,"
                + "events,late,ahead"
        ]
        for day in days {
            let texts = [day.bounds.day.description, day.state.rawValue, day.bounds.zone.name] + day.instants
            lines.append((texts + day.numbers.map { $0.map { "\($0)" } ?? "" }).joined(separator: ","))
        }
        return Array(lines.map { $0 + "\r\n" }.joined().utf8)
    }

    /// With the zone's offset: `2026-11-22T00:00:00+01:00`; `Z` without one.
    fileprivate static func instant(_ seconds: Int64, _ zone: ReportZone) -> String {
        let offset = zone.offset(at: seconds)
        let local = Timestamp(clampingUnixMilliseconds: (seconds + offset) * 1_000).description.prefix(19)
        if offset == 0 { return local + "Z" }
        func two(_ number: Int64) -> String { (number < 10 ? "0" : "") + "\(number)" }
        // RFC 3339 knows minutes only; zones with seconds are long past.
        return "\(local)\(offset < 0 ? "-" : "+")\(two(abs(offset) / 3_600)):\(two(abs(offset) / 60 % 60))"
    }
}

extension DailyReport.Day {
    fileprivate var instants: [String] {
        [bounds.starts, bounds.ends, bounds.closes].map { DailyReport.instant($0, bounds.zone) }
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
        writer.raw(#"{"day":"#)
        writer.string(bounds.day.description)
        writer.raw(#","state":"#)
        writer.string(state.rawValue)
        for (name, text) in zip(["starts_at", "ends_at", "closes_at"], instants) {
            writer.raw(",")
            writer.string(name)
            writer.raw(":")
            writer.string(text)
        }
        writer.raw(#","time_zone":"#)
        writer.string(bounds.zone.name)
        let names = ["users", "active_users", "new_users", "sessions", "timed_sessions", "mean_session_ms", "mean_use_ms"]
        for (name, number) in zip(names, numbers) {
            writer.raw(",")
            writer.string(name)
            writer.raw(":")
            writer.optional(number)
        }
        writer.raw(#","events":{"total":"#)
        writer.integer(figures.events)
        writer.raw(#","by_name":"#)
        writer.list(figures.byName) { writer, name in
            writer.raw(#"{"event":"#)
            writer.string(name.event)
            writer.raw(#","count":"#)
            writer.integer(name.count)
            writer.raw("}")
        }
        writer.raw(#","other":"#)
        writer.integer(figures.other)
        writer.raw(#"},"late":"#)
        writer.integer(late)
        writer.raw(#","ahead":"#)
        writer.integer(figures.ahead)
        writer.raw("}")
    }
}
