import Foundation
import HapaxModel

extension OpenClient {
    package func status() async -> EventClient.Status {
        let delivery = delivery.latestState
        // What is known: a look at the disk may hang, on a thread that belongs to the host.
        let (inMemory, uncounted, consent) = writer.intake.withLock { (Int($0.uncommitted.events), $0.uncounted, $0.consent.consent) }
        let counters = file.counters
        let isPending = consent == .pending && (counters.waiting > 0 || inMemory > 0)
        return EventClient.Status(
            installID: counters.installID, depth: Int(counters.waiting), held: Int(counters.held), bytes: Int(counters.bytes),
            inMemory: inMemory, oldest: file.oldestTime.map(Date.init(unixMilliseconds:)),
            failure: isPending ? .consentPending : delivery.failure, failureDetail: isPending ? nil : delivery.detail,
            storageFailure: writer.lastFailure,
            nextAttempt: delivery.nextAttempt.map(Date.init(unixMilliseconds:)), created: counters.created, stored: counters.stored,
            duplicates: counters.duplicates,
            deadLettered: counters.deadLettered, removed: counters.removed,
            dropped: counters.dropped.merging(uncounted, uniquingKeysWith: +), damage: file.latestDamage)
    }

    /// What waits in this client's file, the oldest first, without those whose bytes have changed on the disk.
    func waiting(limit: Int) async throws(StorageFailure) -> [WaitingEvent] {
        do {
            // To SQLite a negative limit is none (https://www.sqlite.org/lang_select.html#the_limit_clause).
            let found = try await delivery.perform { [file] in try file.events(after: 0, limit: max(limit, 0)) }
            return found.whole.map(WaitingEvent.init)
        } catch {
            throw StorageFailure(error)
        }
    }

    /// Why nothing is sent at the moment, as any process of the directory has noted it; nil where that is not known.
    package var notedFailure: String? {
        guard let note = try? DestinationNotes.all(in: file.directory)["\(delivery.parts.endpoint.destination)"] else { return nil }
        return note.failure.map { note.detail == nil ? $0 : $0 + ": " + (note.detail ?? "") }
    }

    /// Where an event of this client's file became a dead letter.
    package func deadLetter(of id: EventID) throws(StorageFailure) -> DeadLetter? {
        do { return try file.deadLetter(of: id) } catch { throw StorageFailure(error) }
    }

    /// As ``EventClient/deliveries(bufferLimit:)``, without what became of events in other clients' queues and in files that were set aside: who waits
    /// for news of one id would take another event's for it.
    package func ownDeliveries(bufferLimit: Int) -> EventDeliveries {
        EventDeliveries(subscription: reporter.hub.subscribe(limit: bufferLimit, scope: .own))
    }

    /// Whether a power cut may take what was stored at the level `power`.
    package var mayLoseInPowerCut: Bool { file.mayLoseInPowerCut }

    package var deadLetters: DeadLetters { DeadLetters(client: self) }
}
