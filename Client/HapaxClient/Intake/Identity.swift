import HapaxModel

/// Whom events concern that do not say it themselves (R56).
struct Identity: Hashable, Sendable {
    /// Made by this install; stays the same until it is reset.
    var anonymousID: String
    var loginID: String?
    /// For all of a service's events that say nothing else.
    var configuredID: String?

    var distinctID: String { loginID ?? configuredID ?? anonymousID }
}

/// Why an identity was not changed, or not for long.
public enum IdentityError: Error, Hashable, Sendable {
    /// Not 1…200 bytes of UTF-8; nothing has changed.
    case invalidID
    /// It has changed for this process, but the next one will not know.
    case notPersisted(StorageFailure)
}

extension IdentityError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .invalidID: "an id must have 1 to \(EventLimits.maximumDistinctIDBytes) bytes"
        case .notPersisted(let failure): "the change lasts only until the end of the process: \(failure)"
        }
    }
}
