import Foundation

/// The machine's clock, as its logs write it: without an offset.
struct LocalClock {
    private let local = formatter(.current)
    private let universal = formatter(.gmt)

    /// - Parameter text: As `2026-11-21 10:15:00`. A time that a clock change skips is read with the offset from before the change: 02:30 is then
    ///   half an hour after 02:00, which clocks show as 03:30.
    /// - Returns: nil for what is no time.
    func date(_ text: String) -> Date? {
        if let date = local.date(from: text) { return date }
        guard let written = universal.date(from: text) else { return nil }
        // A day earlier is before the change in every zone, and no zone changes its clocks twice within two days.
        return written - TimeInterval(TimeZone.current.secondsFromGMT(for: written - 86_400))
    }

    private static func formatter(_ zone: TimeZone) -> DateFormatter {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = zone
        formatter.dateFormat = "yyyy-MM-dd HH:mm:ss"
        return formatter
    }
}
