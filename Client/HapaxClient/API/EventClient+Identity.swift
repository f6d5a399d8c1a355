import HapaxModel

extension EventClient {
    /// Whom events concern that do not say it: the login id, else the configuration's, else the anonymous id.
    public var distinctID: String { writer.intake.withLock { $0.context.identity.distinctID } }

    /// The directory's own id for whoever uses it, until ``resetAnonymousID()``.
    public var anonymousID: String { writer.intake.withLock { $0.context.identity.anonymousID } }

    /// Who is logged in.
    public var loginID: String? { writer.intake.withLock { $0.context.identity.loginID } }

    /// From now on events concern this user. Waits for the disk: on return the next process knows, too; another that runs learns of it at its
    /// next start.
    ///
    /// - Parameter id: 1…200 bytes of UTF-8.
    /// - Throws: ``IdentityError/notPersisted(_:)`` if only this client knows.
    public func login(_ id: String) throws(IdentityError) {
        guard (1...EventLimits.maximumDistinctIDBytes).contains(id.utf8.count) else { throw .invalidID }
        try changeIdentity { $0.loginID = id }
    }

    /// From now on events concern the configuration's id, or the anonymous one, which stays as it is. Waits for the disk.
    ///
    /// - Throws: ``IdentityError/notPersisted(_:)``, as ``login(_:)``.
    public func logout() throws(IdentityError) {
        try changeIdentity { $0.loginID = nil }
    }

    /// A new anonymous id, as for another person. Waits for the disk.
    ///
    /// - Throws: ``IdentityError/notPersisted(_:)``, as ``login(_:)``.
    public func resetAnonymousID() throws(IdentityError) {
        var ids = UUIDv7Generator()
        let id = ids.next(unixMilliseconds: clock.unixMilliseconds).description
        try changeIdentity { $0.anonymousID = id }
    }

    // MARK: - Opting out

    /// Whether events are refused.
    public var isOptedOut: Bool { writer.intake.withLock { $0.context.isOptedOut } }

    /// Refuses events from now on, in this process and in all others that work in the directory, until ``optIn()``.
    ///
    /// An event is taken in before or refused after, never in between; refused ones are counted as `opted_out`, on disk within a
    /// second. What was taken in before stays and is delivered. Waits for the disk. Another client that works in the directory
    /// follows with its next commit.
    ///
    /// - Throws: ``IdentityError/notPersisted(_:)``; events are refused in this process all the same.
    public func optOut() throws(IdentityError) {
        try changeOptOut(true)
    }

    /// Takes events again. Waits for the disk; another client in the directory follows as with ``optOut()``.
    ///
    /// - Throws: ``IdentityError/notPersisted(_:)``; events are still refused then.
    public func optIn() throws(IdentityError) {
        try changeOptOut(false)
    }

    private func changeOptOut(_ isOptedOut: Bool) throws(IdentityError) {
        do {
            // Of changes at the same time, the last one holds here and on disk.
            try optOutMark.withLock { mark in
                if isOptedOut { writer.intake.withLock { $0.context.isOptedOut = true } }
                try mark.set(isOptedOut)
                writer.intake.withLock { $0.context.isOptedOut = isOptedOut }
            }
        } catch {
            throw .notPersisted(StorageFailure(error))
        }
    }

    /// Deletes every event of this client's file, those that wait and the dead letters, for ever; ``optOut()`` alone deletes nothing.
    ///
    /// A request in flight is awaited first, and what it delivered stays delivered. Waiting events that are deleted are counted in
    /// ``EventClient/Status/removed`` and, under `purged`, in ``EventClient/Status/dropped``. Durable on return. Events tracked during the call may stay, and so
    /// do damaged files that were set aside, if they are kept (``EventClient/Configuration/keepsDamagedFiles``).
    ///
    /// - Returns: How many were deleted.
    /// - Throws: ``StorageFailure``; what was deleted before it stays deleted.
    @discardableResult
    public func purge() async throws(StorageFailure) -> Int {
        try? await writer.barrier()
        do {
            let purged = try await delivery.exclusively { try file.purgeWaiting() + file.purgeDeadLetters() }
            reporter.countersChanged()
            return purged
        } catch {
            throw StorageFailure(error)
        }
    }

    /// Of changes at the same time, the last one holds here and on disk. What another process has changed meanwhile stays.
    private func changeIdentity(_ change: (inout KeptIdentity) -> Void) throws(IdentityError) {
        do {
            try identityFile.withLock { file in
                writer.intake.withLock { intake in
                    var kept = KeptIdentity(
                        anonymousID: intake.context.identity.anonymousID, loginID: intake.context.identity.loginID)
                    change(&kept)
                    (intake.context.identity.anonymousID, intake.context.identity.loginID) = (kept.anonymousID, kept.loginID)
                }
                try requireFile()
                _ = try file.change(change)
            }
        } catch {
            throw .notPersisted(StorageFailure(error))
        }
    }

    /// In a directory that is gone nobody would find it.
    private func requireFile() throws { try file.requireFile() }

    // MARK: - Super properties

    /// Properties that each event gets from now on; they win over automatic ones and lose against an event's own. In memory only.
    public var superProperties: Properties {
        get { writer.intake.withLock { $0.context.superProperties } }
        set { writer.intake.withLock { $0.context.superProperties = newValue } }
    }

    /// Adds to ``superProperties``, in one step; the new ones win.
    public func addSuperProperties(_ properties: Properties) {
        writer.intake.withLock { $0.context.superProperties.merge(properties) }
    }
}
