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
        whenOpen {
            $0.identify(id)
        } else: { state in
            guard id.map(Identity.isValid) ?? true else { return }
            state.context.identity.loginID = id
            state.wishes.login = .some(id)
        }
    }

    /// Nobody is logged in, the anonymous id is a new one, and ``commonProperties`` are empty: as for another person. Never waits for the disk, as
    /// ``identify(_:)``.
    public func reset() {
        whenOpen {
            $0.reset()
        } else: { state in
            state.context.identity.loginID = nil
            state.context.common = [:]
            (state.wishes.isReset, state.wishes.login, state.wishes.common) = (true, nil, [:])
        }
    }

    // MARK: - Opting out

    /// Whether events are refused. While the queue is closed nobody knows what an earlier run has said.
    public var isOptedOut: Bool { context.isOptedOut }

    /// Refuses events from now on, in this process and in all others that work in the directory, until ``optIn()``.
    ///
    /// An event is taken in before or refused after, never in between; refused ones are counted as `opted_out`, on disk within a
    /// second. What was taken in before stays and is delivered. Waits for the disk. Another client that works in the directory
    /// follows with its next commit.
    ///
    /// - Throws: ``ConsentError/notPersisted(_:)``; events are refused in this process all the same.
    public func optOut() throws(ConsentError) { try change(isOptedOut: true) }

    /// Takes events again. Waits for the disk; another client in the directory follows as with ``optOut()``.
    ///
    /// - Throws: ``ConsentError/notPersisted(_:)``; events are still refused then.
    public func optIn() throws(ConsentError) { try change(isOptedOut: false) }

    /// While the queue is closed it is not on disk, and holds before anything is tracked or sent.
    private func change(isOptedOut: Bool) throws(ConsentError) {
        let client = openingOrNote { state in
            state.context.isOptedOut = isOptedOut
            state.wishes.isOptedOut = isOptedOut
        }
        guard let client else { throw .notPersisted(.notOpen) }
        if isOptedOut { try client.optOut() } else { try client.optIn() }
    }

    // MARK: - What every event says

    /// Properties that each event gets; they win over automatic ones and lose against an event's own. An app's hold in later runs, too
    /// (``Configuration/isApp``); while its queue is closed nobody knows those of an earlier run.
    public var commonProperties: Properties { context.common }

    /// Changes ``commonProperties``. Never waits for the disk: the change is on it before any event that is tracked afterwards, name by name, so
    /// that clients of one directory keep each other's.
    ///
    /// - Parameter change: Given a copy, and called again if somebody else changes them meanwhile.
    public func updateCommonProperties(_ change: (inout Properties) -> Void) {
        while true {
            if let open { return open.updateCommonProperties(change) }
            // Not under the lock: it may ask the client.
            let before = context
            var after = before.common
            change(&after)
            let changes = after.changes(since: before.common)
            var isNoted = false
            _ = openOrNote { state in
                guard state.context.generation == before.generation else { return }
                (state.context.common, isNoted) = (after, true)
                state.wishes.common.merge(changes) { $1 }
            }
            if isNoted { return }
        }
    }

    /// The session that an app's events belong to (`$session_id`): what happens without a pause of 30 minutes, for 24 hours at most, in one run
    /// or several. nil of a service, and while the queue is closed.
    public var sessionID: EventID? { open?.sessionID }
}
