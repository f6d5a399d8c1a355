import HapaxModel

/// Whom a queue's events concern that do not say it themselves, as it is kept on disk (R56).
package struct KeptIdentity: Hashable, Sendable {
    package var anonymousID: String
    package var loginID: String?

    package var distinctID: String { loginID ?? anonymousID }

    /// - Parameter installID: Stands for an anonymous id that was never reset.
    init(_ saved: EventQueue.SavedIdentity, installID: EventID) {
        anonymousID = saved.anonymousID ?? installID.description
        loginID = saved.loginID
    }
}

extension QueueReader {
    package func keptIdentity() throws(StorageFailure) -> KeptIdentity {
        try work { KeptIdentity(try EventQueue.identity($0), installID: try EventQueue.installID($0)) }
    }
}

/// For who works on the queue without a client. What is changed is what the next client on this queue begins with; durable on return.
extension EventQueue {
    package func keptIdentity() throws -> KeptIdentity {
        KeptIdentity(try identity(), installID: installID)
    }

    package func changeIdentity(_ change: (inout KeptIdentity) -> Void) throws {
        var kept = try keptIdentity()
        change(&kept)
        try saveIdentity { Identity(anonymousID: kept.anonymousID, loginID: kept.loginID) }
    }

    package func setOptedOut(_ isOptedOut: Bool) throws {
        var mark = OptOutMark(path: directory.optOutPath)
        try mark.set(isOptedOut)
    }
}

extension QueueDirectory {
    package var isOptedOut: Bool { OptOutMark(path: optOutPath).isSet }
}
