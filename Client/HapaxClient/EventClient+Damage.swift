import HapaxModel

extension EventClient {
    static func damageObserver(
        _ writer: QueueWriter, _ session: SessionMarker, _ queue: EventQueue, _ clock: any ClientClock
    ) -> DamageObserver {
        var observer = DamageObserver()
        observer.replaced = { [weak writer, weak session, weak queue] in
            guard let intake = writer?.intake else { return }
            // A caller's retry of what may be lost must be taken.
            intake.withLock { $0.forgetIDs() }
            // If this fails, the next change of either writes it.
            try? queue?.saveIdentity { intake.withLock { $0.context.identity } }
            session?.writeAgain()
        }
        observer.took = { [weak writer] ids in writer?.intake.withLock { $0.queued(ids) } }
        // The server learns of it by an event like any other (I11).
        observer.salvaged = { [weak writer, clock] damage, id in
            guard let writer else { return }
            let admission = writer.intake.withLock {
                $0.admit(
                    name: QueueDamage.eventName, properties: damage.properties, id: id, time: nil, distinctID: nil,
                    now: clock.unixMilliseconds)
            }
            if case .admitted(_, _, true) = admission { writer.wake() }
        }
        return observer
    }
}
