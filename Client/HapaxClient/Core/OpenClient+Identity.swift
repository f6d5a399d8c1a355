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
        let eventID = newID()
        // Whoever logs in meanwhile is not this user: both are recorded.
        guard identifications.expect(Identified(anonymousID, id), eventID) else { return }
        if track("$identify", properties: [EventContext.anonymousID: anonymousID], id: eventID, distinctID: id) == nil {
            identifications.wasRefused(eventID)
        }
    }

    package func reset() {
        // The one who leaves has a session with an end, and the next one a session with a beginning.
        endSession()
        identifications.forget()
        screens.withLock { $0.told = nil }
        let change = IdentityChange(login: .some(nil), anonymousID: newID().description, forgetsCommon: true)
        if writer.intake.withLock({ $0.changePerson(change, now: clock.unixMilliseconds) }) { writer.wake() }
        session.changed()
        writer.whenStored { [session] in session.eventsStored() }
        beginSessionAgain()
    }

    private func newID() -> EventID {
        var ids = UUIDv7Generator()
        return ids.next(unixMilliseconds: clock.unixMilliseconds)
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
            let isTakenAgain = try self.consent.withLock { mark in
                let wasDenied = writer.intake.withLock { $0.context.consent == .denied }
                // From now on, whether it can be kept or not.
                if consent == .denied {
                    writer.intake.withLock { $0.context.consent = .denied }
                    forgetSession()
                }
                let kept = try mark.set(consent, now: clock.unixMilliseconds)
                writer.intake.withLock { $0.change(kept) }
                return wasDenied && kept.consent != .denied
            }
            // The next start does it otherwise; nothing of it is sent.
            if consent == .denied { try? IdentityFile(file.directory).forgetWaiting() }
            if isTakenAgain { beginSessionAgain() }
            Task { [delivery] in await delivery.consentChanged() }
        } catch {
            throw .notPersisted(StorageFailure(error))
        }
    }

    @discardableResult
    package func purge() async throws(StorageFailure) -> Int {
        var purged = 0
        do {
            // What cannot be stored, as on a full disk, may find room behind the first time.
            for isLast in [false, true] {
                try? await writer.barrier(retrying: isLast)
                let unstored = isStoring ? writer.lastFailure : nil
                purged += try await delivery.exclusively { try file.purgeWaiting() + file.purgeDeadLetters() }
                reporter.countersChanged()
                guard let unstored else { break }
                if isLast { throw unstored }
            }
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
            var wanted = before.common
            change(&wanted)
            guard wanted != before.common else { return }
            let (after, refused) = SharedProperties.accepted(wanted, before: before.common, over: before.automatic)
            defer { logRefused(refused) }
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

    func logRefused(_ refused: [SharedProperties.Refused]) {
        guard !refused.isEmpty else { return }
        configuration.logger?.error(
            "Properties that no event may hold are left out: with them each event would be a dead letter",
            metadata: ["hapax.properties": .array(refused.map { "\($0.name): \($0.detail)" })])
    }

    package var sessionID: EventID? { writer.intake.withLock { $0.context.session?.id } }
}
