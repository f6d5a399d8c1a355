import ArgumentParser
import Foundation
import HapaxModel

/// A time as Unix milliseconds or in the form of RFC 3339.
struct TimeArgument: ExpressibleByArgument, Hashable {
    var unixMilliseconds: Int64

    init?(argument: String) {
        if let number = Int64(argument) {
            unixMilliseconds = number
        } else {
            // RFC 3339 takes `t` and `z` as well.
            let text = argument.uppercased()
            let whole = ISO8601DateFormatter()
            let fractional = ISO8601DateFormatter()
            fractional.formatOptions = [.withInternetDateTime, .withFractionalSeconds]
            guard let date = whole.date(from: text) ?? fractional.date(from: text), Self.says(text, date) else { return nil }
            let milliseconds = (date.timeIntervalSince1970 * 1_000).rounded()
            guard abs(milliseconds) < 1e15 else { return nil }
            unixMilliseconds = Int64(milliseconds)
        }
        guard (0...EventLimits.maximumTime).contains(unixMilliseconds) else { return nil }
    }

    /// The formatter takes a 30th of February for the 2nd of March, and any offset.
    private static func says(_ text: String, _ date: Date) -> Bool {
        var shift = 0
        if !text.hasSuffix("Z") {
            let offset = text.suffix(6).split(whereSeparator: { "+-:".contains($0) }).compactMap { Int($0) }
            guard offset.count == 2, offset[0] < 24, offset[1] < 60 else { return false }
            shift = (offset[0] * 3_600 + offset[1] * 60) * (text.suffix(6).hasPrefix("-") ? -1 : 1)
        }
        return ISO8601DateFormatter().string(from: date + TimeInterval(shift)).prefix(19) == text.prefix(19)
    }
}

extension EventID: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}
