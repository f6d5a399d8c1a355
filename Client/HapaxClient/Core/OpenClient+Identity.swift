import HapaxModel

extension OpenClient {
    package var distinctID: String { writer.intake.withLock { $0.context.identity.distinctID } }

    package var anonymousID: String { writer.intake.withLock { $0.context.identity.anonymousID } }

    package var loginID: String? { writer.intake.withLock { $0.context.identity.loginID } }

    package func login(_ id: String) throws(IdentityError) {
        guard (1...EventLimits.maximumDistinctIDBytes).contains(id.utf8.count) else { throw .invalidID }
        try changeIdentity { $0.loginID = id }
    }

    package func logout() throws(IdentityError) {
        try changeIdentity { $0.loginID = nil }
    }

    package func resetAnonymousID() throws(IdentityError) {
        var ids = UUIDv7Generator()
        let id = ids.next(unixMilliseconds: clock.unixMilliseconds).description
        try changeIdentity { $0.anonymousID = id }
    }

    // MARK: - Opting out

    package var isOptedOut: Bool { writer.intake.withLock { $0.context.isOptedOut } }

    package func optOut() throws(IdentityError) {
        try changeOptOut(true)
    }

    package func optIn() throws(IdentityError) {
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

    @discardableResult
    package func purge() async throws(StorageFailure) -> Int {
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

    package var superProperties: Properties {
        get { writer.intake.withLock { $0.context.superProperties } }
        set { writer.intake.withLock { $0.context.superProperties = newValue } }
    }

    package func addSuperProperties(_ properties: Properties) {
        writer.intake.withLock { $0.context.superProperties.merge(properties) }
    }
}
