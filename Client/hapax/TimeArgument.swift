import ArgumentParser
import HapaxModel

/// A time as Unix milliseconds or in the form of RFC 3339.
struct TimeArgument: ExpressibleByArgument, Hashable {
    var unixMilliseconds: Int64

    init?(argument: String) {
        guard let value = Int64(argument) ?? Timestamp(argument)?.unixMilliseconds else { return nil }
        unixMilliseconds = value
        guard (0...EventLimits.maximumTime).contains(unixMilliseconds) else { return nil }
    }
}

extension EventID: ExpressibleByArgument {
    public init?(argument: String) { self.init(uuidString: argument) }
}
