import HapaxModel
import Logging

extension OpenClient {
    package var identity: Identity { writer.intake.withLock { $0.context.identity } }

    package func identify(_ id: String?) {
        if let id, !Identity.isValid(id) {
            if writer.intake.withLock({ $0.uncounted[DropReason.invalidID.rawValue] == nil }) {
                configuration.logger?.warning("An id that has not 1 to 200 bytes was given to identify, and is ignored")
            }
            _ = writer.intake.withLock { $0.refuse(.invalidID) }
            return countRefusalsSoon()
        }
        let anonymousID = change(IdentityChange(login: .some(id)))
        guard let id else { return }
        let key = anonymousID + "\u{0}" + id
        // Once for each user and run: two processes, and a run that ended in between, make one event of it (its id is derived).
        let isNew = identified.withLock { identified in
            defer { identified = key }
            return identified != key
        }
        // Whoever logs in meanwhile is not this user: both are recorded here.
        guard isNew else { return }
        let tracked = track(
            "$identify", properties: [EventContext.anonymousID: anonymousID], id: .derived(name: "$identify", key: key), distinctID: id)
        // Refused, as while the user has opted out, it is still to be recorded.
        if tracked == nil { identified.withLock { if $0 == key { $0 = nil } } }
    }

    package func reset() {
        var ids = UUIDv7Generator()
        let anonymousID = ids.next(unixMilliseconds: clock.unixMilliseconds).description
        identified.withLock { $0 = nil }
        change(IdentityChange(login: .some(nil), anonymousID: anonymousID, forgetsCommon: true))
    }

    /// - Returns: The anonymous id from then on.
    @discardableResult
    private func change(_ change: IdentityChange) -> String {
        let (wake, anonymousID) = writer.intake.withLock { $0.change(change) }
        if wake { writer.wake() }
        return anonymousID
    }

    // MARK: - Consent

    package func setConsent(_ consent: Consent) throws(ConsentError) {
        do {
            // Of changes at the same time, the last one holds here and on disk.
            try self.consent.withLock { mark in
                // From now on, whether it can be kept or not.
                if consent == .denied {
                    writer.intake.withLock { $0.context.consent = .denied }
                    Self.forget(session, identified)
                }
                let kept = try mark.set(consent, now: clock.unixMilliseconds)
                writer.intake.withLock { $0.change(kept) }
            }
            Task { [delivery] in await delivery.consentChanged() }
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

    // MARK: - Common properties

    package var commonProperties: Properties { writer.intake.withLock { $0.context.common } }

    package func updateCommonProperties(_ change: (inout Properties) -> Void) {
        while true {
            let before = writer.intake.withLock { $0.context }
            var after = before.common
            change(&after)
            let changes = after.changes(since: before.common)
            guard !changes.isEmpty else { return }
            let wake: Bool? = writer.intake.withLock { intake in
                guard intake.context.generation == before.generation else { return nil }
                guard configuration.isApp else {
                    intake.context.common = after
                    return false
                }
                return intake.change(IdentityChange(common: changes)).wake
            }
            guard let wake else { continue }
            if wake { writer.wake() }
            return
        }
    }

    package var sessionID: EventID? { writer.intake.withLock { $0.context.session?.id } }
}
