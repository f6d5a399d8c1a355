import HapaxModel

/// Whom events concern that do not say it themselves (R56).
public struct Identity: Hashable, Sendable {
    /// The directory's own id for whoever uses it, until ``EventClient/reset()``; empty until the queue has been open.
    public internal(set) var anonymousID: String
    /// Who is logged in (``EventClient/identify(_:)``).
    public internal(set) var loginID: String?
    /// For all of a service's events that say nothing else.
    var configuredID: String?

    /// Whom events concern that do not say it: the login id, else the configuration's, else the anonymous id.
    public var distinctID: String { loginID ?? configuredID ?? anonymousID }

    init(anonymousID: String, loginID: String? = nil, configuredID: String? = nil) {
        (self.anonymousID, self.loginID, self.configuredID) = (anonymousID, loginID, configuredID)
    }

    static func isValid(_ id: String) -> Bool {
        (1...EventLimits.maximumDistinctIDBytes).contains(id.utf8.count) && !id.utf8.contains(0)
    }
}

/// What is to be kept of an identity. Kept twice it is the same.
enum IdentityChange: Hashable, Sendable {
    case login(String?)
    case anonymous(String)

    var isLogin: Bool { if case .login = self { true } else { false } }

    func change(_ kept: inout KeptIdentity) {
        switch self {
        case .login(let id): kept.loginID = id
        case .anonymous(let id): kept.anonymousID = id
        }
    }
}

/// Why somebody has not opted out or in, or not for long.
public enum ConsentError: Error, Hashable, Sendable {
    /// It has changed for this process, but the next one will not know.
    case notPersisted(StorageFailure)
}

extension ConsentError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .notPersisted(let failure): "the change lasts only until the end of the process: \(failure)"
        }
    }
}
