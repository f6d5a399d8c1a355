import HapaxModel

extension EventClient {
    static func damageObserver(
        _ queue: EventQueue, _ writer: QueueWriter, _ session: SessionMarker, _ reporter: EventReporter, _ clock: any ClientClock
    ) -> DamageObserver {
        let (installID, isSpool) = (queue.installID, queue.isSpool)
        var observer = DamageObserver()
        observer.state = { [weak writer, weak session] in
            // A spool's identity is the main queue's.
            let identity = isSpool ? nil : writer?.intake.withLock { $0.context.identity }
            return (identity.map { EventQueue.SavedIdentity(anonymousID: $0.anonymousID, loginID: $0.loginID) }, session?.open)
        }
        observer.identified = { [weak writer] saved in
            guard !isSpool else { return }
            writer?.intake.withLock { intake in
                // Somebody is about to save another.
                let identity = intake.context.identity
                guard identity.loginID == nil, identity.anonymousID == installID.description else { return }
                intake.context.identity.anonymousID = saved.anonymousID ?? identity.anonymousID
                intake.context.identity.loginID = saved.loginID
            }
        }
        // Weakly: it asks the queue, which keeps this.
        observer.buried = { [weak reporter] in reporter?.settled($0, .all) }
        // The server learns of it by an event like any other (I11).
        observer.salvaged = { [weak writer, clock] damage, id in
            guard let writer else { return }
            let admission: Intake.Admission? = writer.intake.withLock {
                // The next run tells, or it is told already.
                $0.isClosed || $0.isWaiting(id)
                    ? nil
                    : $0.admit(
                        name: QueueDamage.eventName, properties: damage.properties, id: id, time: nil, distinctID: nil,
                        now: clock.unixMilliseconds, isRepeated: true)
            }
            if case .admitted(_, _, true) = admission { writer.wake() }
        }
        return observer
    }
}
