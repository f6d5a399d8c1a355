import Foundation
import HapaxModel

/// A time zone as reports need it: when a local day begins, and when its report closes.
struct ReportZone: Hashable, Sendable {
    /// Of the time zone database, such as `Europe/Berlin`.
    let name: String
    private let zone: TimeZone

    static let utc = ReportZone(name: "UTC", zone: .gmt)

    /// The names without a slash that are accepted. Foundation also takes abbreviations, which can mean several zones.
    static let plainNames: Set<String> = [
        "UTC", "GMT", "Cuba", "Egypt", "Eire", "GB", "GB-Eire", "Greenwich", "Hongkong", "Iceland", "Iran", "Israel", "Jamaica", "Japan",
        "Kwajalein", "Libya", "NZ", "NZ-CHAT", "Navajo", "PRC", "Poland", "Portugal", "ROC", "ROK", "Singapore", "Turkey", "UCT",
        "Universal", "W-SU", "Zulu", "CET", "EET", "MET", "WET", "CST6CDT", "EST5EDT", "MST7MDT", "PST8PDT",
    ]

    /// - Returns: nil for a name that the time zone database of Swift's runtime does not hold.
    init?(_ name: String) {
        // Foundation also makes up zones like GMT+0130; its list of known names lacks many, such as Asia/Kolkata.
        guard Self.plainNames.contains(name) || name.wholeMatch(of: /[A-Za-z0-9_+-]+(\/[A-Za-z0-9_+-]+)+/) != nil,
            let zone = TimeZone(identifier: name)
        else {
            return nil
        }
        self.init(name: name, zone: zone)
    }

    /// The release of the time zone database in use, such as `2025b`, which Swift's runtime brings; and the system's, if that is newer.
    static func databaseVersion(system path: String = "/usr/share/zoneinfo/tzdata.zi") -> (used: String, newer: String?) {
        let used = TimeZone.timeZoneDataVersion
        let text = FileHandle(forReadingAtPath: path).flatMap { try? $0.read(upToCount: 64) }.map { String(decoding: $0, as: UTF8.self) }
        let version = text?.prefixMatch(of: /# version ([0-9]{4}[a-z]+)/).map { String($0.1) }
        return (used, version.flatMap { $0 > used ? $0 : nil })
    }

    private init(name: String, zone: TimeZone) {
        self.name = name
        self.zone = zone
    }

    /// The first instant whose local date is the day or a later one, in Unix seconds: some zones skip midnight, some a whole day.
    func start(of day: CalendarDay) -> Int64 { firstInstant(at: Int64(day.daysSince1970) * 86_400) }

    /// The first instant whose local time is 04:00 of the next day or later (R60), in Unix seconds.
    func close(of day: CalendarDay) -> Int64 { firstInstant(at: (Int64(day.daysSince1970) + 1) * 86_400 + 4 * 3_600) }

    /// The local day of an instant.
    func day(at seconds: Int64) -> CalendarDay {
        let local = seconds + offset(at: seconds)
        return CalendarDay(daysSince1970: Int32(clamping: local >= 0 ? local / 86_400 : 0)) ?? .last
    }

    /// Seconds east of Greenwich.
    func offset(at seconds: Int64) -> Int64 {
        Int64(zone.secondsFromGMT(for: Date(timeIntervalSince1970: TimeInterval(seconds))))
    }

    /// Starts 36 hours earlier and goes from one change of the offset to the next: between two changes local time runs evenly.
    private func firstInstant(at local: Int64) -> Int64 {
        var now = local - 36 * 3_600
        while true {
            let offset = offset(at: now)
            let reached = max(now, local - offset)
            guard let change = nextChange(after: now, upTo: reached, from: offset) else { return reached }
            now = change
        }
    }

    /// The first second with another offset; nil if there is none. Steps of 15 minutes suffice: no two changes are closer than that.
    private func nextChange(after start: Int64, upTo end: Int64, from offset: Int64) -> Int64? {
        var before = start
        while before < end {
            let after = min(before + 900, end)
            if self.offset(at: after) != offset {
                var (low, high) = (before, after)
                while high - low > 1 {
                    let middle = low + (high - low) / 2
                    if self.offset(at: middle) == offset { low = middle } else { high = middle }
                }
                return high
            }
            before = after
        }
        return nil
    }
}

/// A day of a project: when it begins and ends, and when its report closes.
struct ReportDay: Hashable, Sendable {
    var day: CalendarDay
    /// Unix seconds; the end is not part of the day.
    var starts: Int64
    var ends: Int64
    /// When its report closes, in Unix seconds (R60).
    var closes: Int64
    var zone: ReportZone

    /// The same day, begun where the stored day before it ended, whatever a zone says that was set later.
    ///
    /// - Parameter end: nil where no day before it is stored.
    func beginning(at end: Int64?) -> ReportDay {
        guard let end else { return self }
        var day = self
        day.starts = end
        (day.ends, day.closes) = (max(ends, end), max(closes, end))
        return day
    }
}

/// The zones of a project, each from a day on. The bounds of a day that has begun never change: a new zone holds from a future day.
struct ZoneHistory: Sendable {
    /// In the order of their days; the first holds for all days before, too.
    private(set) var zones: [(from: CalendarDay, zone: ReportZone)]

    init(_ first: ReportZone) {
        zones = [(.first, first)]
    }

    var latest: ReportZone { zones[zones.count - 1].zone }

    mutating func add(_ zone: ReportZone, from day: CalendarDay) {
        zones = zones.prefix(1) + zones.dropFirst().filter { $0.from < day } + [(day, zone)]
    }

    /// The first day that another zone can hold from: the first that begins, by that zone, two days ahead or later.
    static func firstDay(of zone: ReportZone, now: Int64) -> CalendarDay {
        var day = zone.day(at: now + 2 * 86_400)
        while zone.start(of: day) < now + 2 * 86_400, day < .last { day = day.advanced(by: 1) }
        return day
    }

    func zone(of day: CalendarDay) -> ReportZone { zones.last { $0.from <= day }?.zone ?? zones[0].zone }

    /// Each day begins where the day before ended, by that day's zone; a day that would end before it begins is empty.
    func bounds(of day: CalendarDay) -> ReportDay {
        let zone = zone(of: day)
        let (starts, ends) = (start(of: day), start(of: day.advanced(by: 1)))
        return ReportDay(day: day, starts: starts, ends: ends, closes: max(zone.close(of: day), ends), zone: zone)
    }

    private func start(of day: CalendarDay) -> Int64 {
        max(cut(day), cut(day.advanced(by: -1)))
    }

    private func cut(_ day: CalendarDay) -> Int64 {
        zone(of: day.advanced(by: -1)).start(of: day)
    }

    /// The day that an instant lies in.
    func day(at seconds: Int64) -> CalendarDay {
        var day = latest.day(at: seconds)
        while bounds(of: day).starts > seconds, day > .first { day = day.advanced(by: -1) }
        while bounds(of: day).ends <= seconds, day < .last { day = day.advanced(by: 1) }
        return day
    }
}
