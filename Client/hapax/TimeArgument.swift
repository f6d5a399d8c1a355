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
            let whole = ISO8601DateFormatter()
            let fractional = ISO8601DateFormatter()
            fractional.formatOptions = [.withInternetDateTime, .withFractionalSeconds]
            guard let date = whole.date(from: argument) ?? fractional.date(from: argument) else { return nil }
            let milliseconds = (date.timeIntervalSince1970 * 1_000).rounded()
            guard abs(milliseconds) < 1e15 else { return nil }
            unixMilliseconds = Int64(milliseconds)
        }
        guard (0...EventLimits.maximumTime).contains(unixMilliseconds) else { return nil }
    }
}

extension EventID: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}
