import Foundation

extension Date {
    /// As an event's time is stored and sent.
    package init(unixMilliseconds: Int64) { self.init(timeIntervalSince1970: Double(unixMilliseconds) / 1_000) }

    /// What no event may have stays so: a time that is none, or beyond all years, is −1.
    package var unixMilliseconds: Int64 {
        Int64(exactly: (timeIntervalSince1970 * 1_000).rounded()) ?? -1
    }
}
