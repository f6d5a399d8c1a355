import HapaxModel

/// An event that somebody else has made: its bytes travel as they are.
package struct ImportedEvent: Sendable {
    package var id: EventID
    package var time: Int64
    package var bytes: [UInt8]

    /// - Parameter bytes: One JSON object that obeys the limits, without white space around it.
    package init(id: EventID, time: Int64, bytes: [UInt8]) {
        (self.id, self.time, self.bytes) = (id, time, bytes)
    }
}

/// For an import, which goes through the client's file and not through ``track(_:properties:id:time:distinctID:)``: nothing is added to its events.
extension OpenClient {
    /// Durable on return, as the configuration's ``Durability`` says. They do not wait for the consent of the directory's user, and none of that
    /// user's decisions deletes them: they have users of their own.
    ///
    /// - Returns: How many wait already, and how many are dead letters.
    package func store(_ events: [ImportedEvent]) throws(StorageFailure) -> (known: Int, deadLettered: Int) {
        do {
            let consent = consent.withLock { $0.current() }
            let prepared = events.map { PreparedEvent(id: $0.id, time: $0.time, bytes: $0.bytes) }
            let appended = try file.append(prepared, now: clock.unixMilliseconds, consent: consent)
            try file.flushDrive()
            return (events.count - appended.created, appended.deadLetters.count)
        } catch {
            throw StorageFailure(error)
        }
    }

    /// Delivers until so few wait, backoff after backoff.
    ///
    /// - Returns: `drained` then; `more` after a part; else why it ended.
    package func deliver(downTo waiting: Int) async -> Delivery.Step {
        if waiting > 0, file.counters.waiting <= waiting { return Delivery.Step(next: .drained) }
        return await delivery.stepThroughRests()
    }

    /// Of the client's file, as the latest commit left them.
    package var counters: QueueCounters { file.counters }

    package var directory: QueueDirectory { file.directory }

    /// Ends ``deliver(downTo:)``; nothing is sent any more.
    package func stopDelivering() async {
        transport.close()
        await delivery.stop()
    }

    /// Why the latest attempt to deliver failed, with what the server said of it; without waiting.
    package var latestFailure: String? {
        let state = delivery.latestState
        return state.failure?.described(state.detail)
    }

    /// What the server said of the latest request, of any file.
    package var latestDetail: String? { delivery.latestState.detail }
}
