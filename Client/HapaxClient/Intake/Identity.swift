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

/// What is to be kept of an identity, and of the properties that every event gets. Kept twice it is the same.
struct IdentityChange: Sendable {
    var login: String??
    var anonymousID: String?
    var forgetsCommon = false
    /// Under each name its new value, nil where it has none any more.
    var common: [String: PropertyValue?] = [:]

    /// What both come to, this one first.
    func followed(by later: IdentityChange) -> IdentityChange {
        var all = self
        if let login = later.login { all.login = .some(login) }
        all.anonymousID = later.anonymousID ?? anonymousID
        if later.forgetsCommon { (all.forgetsCommon, all.common) = (true, [:]) }
        all.common.merge(later.common) { $1 }
        return all
    }

    func change(_ kept: inout KeptIdentity) {
        if let login { kept.loginID = login }
        kept.anonymousID = anonymousID ?? kept.anonymousID
        if forgetsCommon { kept.common = [:] }
        for (name, value) in common { kept.common[name] = value }
    }
}

extension Properties {
    /// What makes these of others, name by name.
    func changes(since others: Properties) -> [String: PropertyValue?] {
        let (old, new) = (others.byName, byName)
        var changes: [String: PropertyValue?] = [:]
        for name in Set(old.keys).union(new.keys) where old[name] != new[name] { changes.updateValue(new[name], forKey: name) }
        return changes
    }
}
