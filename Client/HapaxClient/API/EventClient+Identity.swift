import HapaxModel

// Whom events concern, and what each of them says.
extension EventClient {
    /// Whom events concern that do not say it themselves.
    public var identity: Identity { context.identity }

    /// From now on events concern this user, and carry `$anonymous_id`; `$identify` is tracked once for each user, by all runs and processes of the
    /// directory, which knows the last hundred users. Never waits for the disk: the change is on it before any event that is tracked afterwards, and
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

    /// Nobody is logged in, the anonymous id and the session are new ones, and ``commonProperties`` are empty: as for another person. While the app is
    /// shown the session before ends with `$AppEnd`, and the new one begins with `$AppStart` and the screen that is shown; in the background the
    /// next activation begins it. Never waits for the disk, as ``identify(_:)``.
    public func reset() {
        whenOpen {
            $0.reset()
        } else: { state in
            state.context.identity.loginID = nil
            state.context.common = [:]
            (state.wishes.isReset, state.wishes.login, state.wishes.common) = (true, nil, [:])
        }
    }

    // MARK: - Consent

    /// What the user of the directory has agreed to: the last decision, in this run or an earlier one, else what the configuration says
    /// (``Configuration/consent``). While the queue is closed an earlier run's decision is not known.
    public var consent: Consent { context.consent }

    /// From now on, for this process and all others that work in the directory, and for later runs:
    ///
    /// - ``Consent/granted``: events are taken and sent, those that have waited included. After a denial an app that is shown begins a session:
    ///   `$AppStart` and the screen that is shown.
    /// - ``Consent/pending``: events are taken and stored; no request is made, and ``flush(within:)`` says ``DeliveryFailure/consentPending``.
    /// - ``Consent/denied``: events are refused, and counted as `opted_out`. Those that were taken while it was pending are deleted, dead letters
    ///   included, and counted as `purged`; the server never learns of them, not even how many there were. Those from before stay and are sent (``purge()`` deletes them).
    ///
    /// An event is taken before or after, never in between, and has the first answer that comes behind it. Waits for the disk. Another client that
    /// works in the directory follows with its next commit, which counts as behind, and before its next request.
    ///
    /// - Throws: ``ConsentError/notPersisted(_:)``; a denial holds in this process all the same, anything else has changed nothing. So while
    ///   the queue is closed, where it is remembered and holds before anything is tracked or sent.
    public func setConsent(_ consent: Consent) throws(ConsentError) {
        let client = openingOrNote { state in
            state.context.consent = consent
            state.wishes.consent = consent
        }
        guard let client else { throw .notPersisted(.notOpen) }
        try client.setConsent(consent)
    }

    // MARK: - What every event says

    /// Properties that each event gets; they win over automatic ones and lose against an event's own. An app's hold in later runs, too
    /// (``Configuration/isApp``); while its queue is closed nobody knows those of an earlier run.
    public var commonProperties: Properties { context.common }

    /// Changes ``commonProperties``. Never waits for the disk: the change is on it before any event that is tracked afterwards, name by name, so
    /// that clients of one directory keep each other's.
    ///
    /// What no event may hold, as a number that is not finite or a text of 33 KB, is not set: an error in the log names it, and its name keeps what
    /// it had.
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
