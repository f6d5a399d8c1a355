import HapaxModel

// Whom events concern, and what each of them says.
extension EventClient {
    /// Whom events concern that do not say it: the login id, else the configuration's, else the anonymous id.
    public var distinctID: String { context.identity.distinctID }

    /// The directory's own id for whoever uses it, until ``resetAnonymousID()``. Empty until the queue has been open.
    public var anonymousID: String { context.identity.anonymousID }

    /// Who is logged in.
    public var loginID: String? { context.identity.loginID }

    /// From now on events concern this user. Waits for the disk: on return the next process knows, too; another that runs learns of it at its
    /// next start.
    ///
    /// - Parameter id: 1…200 bytes of UTF-8.
    /// - Throws: ``IdentityError/notPersisted(_:)`` if only this client knows.
    public func login(_ id: String) throws(IdentityError) {
        guard (1...EventLimits.maximumDistinctIDBytes).contains(id.utf8.count) else { throw .invalidID }
        try nowOrLater({ (client) throws(IdentityError) in try client.login(id) }) { $0.context.identity.loginID = id }
    }

    /// From now on events concern the configuration's id, or the anonymous one, which stays as it is. Waits for the disk.
    ///
    /// - Throws: ``IdentityError/notPersisted(_:)``, as ``login(_:)``.
    public func logout() throws(IdentityError) {
        try nowOrLater({ (client) throws(IdentityError) in try client.logout() }) { $0.context.identity.loginID = nil }
    }

    /// A new anonymous id, as for another person. Waits for the disk.
    ///
    /// - Throws: ``IdentityError/notPersisted(_:)``, as ``login(_:)``.
    public func resetAnonymousID() throws(IdentityError) {
        try nowOrLater({ (client) throws(IdentityError) in try client.resetAnonymousID() })
    }

    // MARK: - Opting out

    /// Whether events are refused.
    public var isOptedOut: Bool { context.isOptedOut }

    /// Refuses events from now on, in this process and in all others that work in the directory, until ``optIn()``.
    ///
    /// An event is taken in before or refused after, never in between; refused ones are counted as `opted_out`, on disk within a
    /// second. What was taken in before stays and is delivered. Waits for the disk. Another client that works in the directory
    /// follows with its next commit.
    ///
    /// - Throws: ``IdentityError/notPersisted(_:)``; events are refused in this process all the same.
    public func optOut() throws(IdentityError) {
        try nowOrLater({ (client) throws(IdentityError) in try client.optOut() }) { $0.context.isOptedOut = true }
    }

    /// Takes events again. Waits for the disk; another client in the directory follows as with ``optOut()``.
    ///
    /// - Throws: ``IdentityError/notPersisted(_:)``; events are still refused then.
    public func optIn() throws(IdentityError) {
        try nowOrLater({ (client) throws(IdentityError) in try client.optIn() }) { $0.context.isOptedOut = false }
    }

    /// While the queue is closed a change is remembered, and is not on disk.
    private func nowOrLater(
        _ change: @escaping @Sendable (OpenClient) throws(IdentityError) -> Void, note: (inout State) -> Void = { _ in }
    ) throws(IdentityError) {
        if let open { return try change(open) }
        whenOpen({ try? change($0) }, note: note)
        throw .notPersisted(.notOpen)
    }

    // MARK: - Super properties

    /// Properties that each event gets from now on; they win over automatic ones and lose against an event's own. In memory only.
    public var superProperties: Properties {
        get { context.superProperties }
        set { whenOpen({ $0.superProperties = newValue }) { $0.context.superProperties = newValue } }
    }

    /// Adds to ``superProperties``, in one step; the new ones win.
    public func addSuperProperties(_ properties: Properties) {
        whenOpen({ $0.addSuperProperties(properties) }) { $0.context.superProperties.merge(properties) }
    }
}
