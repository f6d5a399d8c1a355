import Foundation
import HapaxModel

/// A time as files have it: Unix milliseconds, or a day and time of ISO 8601, with or without seconds and zone, with `T` or a blank between.
struct ISOTime {
    let unixMilliseconds: Int64

    /// The day in which it lies (UTC).
    var day: CalendarDay { CalendarDay(daysSince1970: Int32(clamping: unixMilliseconds / 86_400_000)) ?? .first }

    /// What a number as time has: fewer digits count seconds, more are a day and time without signs between.
    private static let digits = 13

    /// - Parameter zone: Of times that name none.
    /// - Throws: ``EventProblem``, or ``CSVMapping/Failure`` if the time names no zone and none is given.
    init(_ text: String, in zone: TimeZone?) throws {
        let text = text.trimmingCharacters(in: .whitespaces)
        if !text.isEmpty, text.utf8.allSatisfy({ $0 &- 0x30 < 10 }) {
            guard let number = Int64(text), text.utf8.count == Self.digits else {
                throw EventProblem(.invalidTime, detail: "a number as time must be Unix milliseconds, of \(Self.digits) digits")
            }
            unixMilliseconds = number
            return
        }
        let (local, offset) = Self.parts(text)
        guard let time = Timestamp(local + (offset ?? "Z")) else {
            throw EventProblem(
                .invalidTime,
                detail:
                    "must be as 2026-11-25T09:00:00.5+01:00, 2026-11-25 09:00, 2026-11-25, or Unix milliseconds, a day that there is, in the years 1970 to 9999"
            )
        }
        guard offset == nil else {
            unixMilliseconds = time.unixMilliseconds
            return
        }
        guard let zone else {
            throw CSVMapping.Failure(reason: "the time has no zone; say which with --zone, such as UTC or Europe/Berlin")
        }
        // Some days begin at one o'clock.
        let times = stride(
            from: time.unixMilliseconds, through: time.unixMilliseconds + (text.utf8.count == 10 ? 82_800_000 : 0), by: 900_000)
        guard let instant = times.lazy.compactMap({ Self.instant(local: $0, in: zone) }).first else {
            throw EventProblem(.invalidTime, detail: "in \(zone.identifier) clocks were put forward past this time")
        }
        unixMilliseconds = instant
    }

    /// In the form of RFC 3339, if it has nearly that: what the clock shows, and the zone's offset if it is there.
    private static func parts(_ text: String) -> (local: String, offset: String?) {
        var local = text.replacing(",", with: ".")
        var offset: String?
        if let end = ["UTC", "Z", "z"].first(where: { text.hasSuffix($0) }) {
            (local, offset) = (String(local.dropLast(end.count)), "Z")
        } else if local.utf8.count > 16, let sign = local.dropFirst(10).lastIndex(where: { $0 == "+" || $0 == "-" }) {
            let digits = local[sign...].dropFirst().filter { $0 != ":" }
            offset = "\(local[sign])\(digits.prefix(2)):\(digits.count > 2 ? String(digits.dropFirst(2)) : "00")"
            local = String(local[..<sign])
        }
        local = local.trimmingCharacters(in: .whitespaces)
        if local.utf8.count == 10 { local += "T00:00" }
        if local.utf8.count == 16 { local += ":00" }
        return (local.replacing(" ", with: "T"), offset)
    }

    /// The first instant at which clocks in a zone show a time.
    ///
    /// - Parameter local: As if it were UTC.
    private static func instant(local: Int64, in zone: TimeZone) -> Int64? {
        func offset(at milliseconds: Int64) -> Int64 {
            Int64(zone.secondsFromGMT(for: Date(timeIntervalSince1970: Double(milliseconds) / 1_000))) * 1_000
        }
        // No clock is changed twice within two days.
        let instants = [-86_400_000, 86_400_000].map { local - offset(at: local + $0) }
        return instants.filter { (0...EventLimits.maximumTime).contains($0) && $0 + offset(at: $0) == local }.min()
    }
}
