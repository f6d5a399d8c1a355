import HapaxModel

// Whom events concern, and what each of them says.
extension EventClient {
    /// Whom events concern that do not say it themselves.
    public var identity: Identity { context.identity }

    /// From now on events concern this user, and carry `$anonymous_id`; for each user and run `$identify` is tracked once, with an id that
    /// makes one event of all runs and processes. Never waits for the disk: the change is on it before any event that is tracked afterwards, and
    /// holds in later runs. Another process that runs learns of it at its next start.
    ///
    /// - Parameter id: 1…200 bytes of UTF-8 without U+0000; another one is ignored, logged, and counted as ``DropReason/invalidID``. nil logs out:
    ///   events concern the configuration's id again, or the anonymous one, which stays as it is.
    public func identify(_ id: String?) {
        whenOpen({ $0.identify(id) }) { state in
            if id.map(Identity.isValid) ?? true { state.context.identity.loginID = id }
        }
    }

    /// Nobody is logged in, the anonymous id is a new one, and ``superProperties`` are empty: as for another person. Never waits for the disk, as
    /// ``identify(_:)``.
    public func reset() {
        whenOpen({ $0.reset() }) { state in
            state.context.identity.loginID = nil
            state.context.superProperties = [:]
        }
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
    /// - Throws: ``ConsentError/notPersisted(_:)``; events are refused in this process all the same.
    public func optOut() throws(ConsentError) {
        try nowOrLater({ (client) throws(ConsentError) in try client.optOut() }) { $0.context.isOptedOut = true }
    }

    /// Takes events again. Waits for the disk; another client in the directory follows as with ``optOut()``.
    ///
    /// - Throws: ``ConsentError/notPersisted(_:)``; events are still refused then.
    public func optIn() throws(ConsentError) {
        try nowOrLater({ (client) throws(ConsentError) in try client.optIn() }) { $0.context.isOptedOut = false }
    }

    /// While the queue is closed a change is remembered, and is not on disk.
    private func nowOrLater(
        _ change: @escaping @Sendable (OpenClient) throws(ConsentError) -> Void, note: (inout State) -> Void = { _ in }
    ) throws(ConsentError) {
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
