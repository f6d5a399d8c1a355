import HapaxModel
import Logging

/// From a pass's first read to its rest.
extension Delivery {
    func wanted(manual: Bool) {
        if isResting, !suspects.isEmpty, clock.monotonic > suspectedUntil {
            // The server may be another by now.
            machine.suspicionEnded()
            suspects = []
        }
        begin(machine.uploadWanted(manual: manual))
    }

    func begin(_ action: DeliveryStateMachine.Action) {
        guard action != .none else { return }
        timer?.cancel()
        timer = nil
        nextAttempt = nil
        isResting = false
        mayRequestOnce = false
        ending = nil
        pass = Task { await perform(action) }
    }

    func perform(_ first: DeliveryStateMachine.Action) async {
        var action = first
        while true {
            switch action {
            case .none: return rest()
            case .read(let limit, let skipping): action = await read(limit: limit, skipping: skipping)
            case .send: action = await send()
            case .settle: action = await settle()
            case .condemn: action = await condemn()
            case .testify: action = await testify()
            case .rest(let rest): return begin(rest)
            }
        }
    }

    func read(limit: Int, skipping: Int) async -> DeliveryStateMachine.Action {
        if let held = holdsBack() { return held }
        skipped = skipping
        if hasWitness { machine.witnessFound() }
        do {
            batch = try await source.nextBatch(limit: limit, maximumBytes: endpoint.maximumBatchBytes, skipping: skipping)
            counts.deadLettered += batch.buried
            return machine.batchRead(count: batch.events.count)
        } catch {
            failed(.queue(StorageFailure(error)))
            // Nothing asks the server meanwhile.
            isUnanswered.withLock { $0 = false }
            return machine.readFailed()
        }
    }

    /// Asks whoever limits the pass, then the gate, about its next request.
    ///
    /// - Returns: What follows if that may not be made; nil if it may.
    func holdsBack() -> DeliveryStateMachine.Action? {
        heldBy = exclusives > 0 ? Self.exclusive : nil
        if heldBy != nil { return machine.held() }
        if let (limit, number) = limits.permission(), limit == .denied || limit == .unwanted {
            // The gate has nothing to say then: whoever asked knows why the pass ends.
            heldBy = number
            return limit == .unwanted ? machine.held() : denied()
        }
        mayRequestOnce = mayRequest()
        return mayRequestOnce ? nil : denied()
    }

    /// What is accepted when a request may be made again convicts nobody who was refused before.
    func denied() -> DeliveryStateMachine.Action {
        suspects = []
        return machine.denied()
    }

    /// Asks the gate, and keeps the timeout that it gives.
    func mayRequest() -> Bool {
        switch gate(isManual) {
        case .granted(let timeout):
            self.timeout = timeout
            return true
        case .denied:
            // A policy tries again by itself; who asked must learn of it.
            if isManual { failed(.noBackgroundTime) }
            return false
        case .unwanted: return false
        }
    }

    func send() async -> DeliveryStateMachine.Action {
        let answer = await attempt(batch)
        switch answer {
        case .accepted(let results):
            leftAloneUntil.withLock { $0 = .zero }
            isUnanswered.withLock { $0 = false }
            verdicts = results
            return machine.answered(.accepted)
        case .batchRefused(let code):
            let failure = DeliveryFailure.status(code.status, code: code.rawValue)
            failed(failure)
            awaitsWitness = true
            isUnanswered.withLock { $0 = false }
            // One that stands farther behind was only tried to learn about the server.
            if let event = batch.events.first, batch.events.count == 1, skipped == suspects.count {
                if suspects.isEmpty { refusedEnvelope = batch.envelope }
                suspectedUntil = clock.monotonic + DeliveryStateMachine.suspicionTime
                if isOfSuspects {
                    suspects.append(Settlement(event: event, fate: .deadLetter(reason: code.rawValue, detail: "\(failure)")))
                }
            }
            return machine.answered(.batchRefused)
        case .tryLater(let failure, let retryAfter):
            return triesLater(failure, retryAfter)
        case .pause(let failure):
            failed(failure)
            isUnanswered.withLock { $0 = true }
            return machine.answered(.pause)
        }
    }

    func triesLater(_ failure: DeliveryFailure, _ retryAfter: Duration?) -> DeliveryStateMachine.Action {
        failed(failure)
        isUnanswered.withLock { $0 = true }
        let rest = min(retryAfter ?? .zero, retryPolicy.cap)
        // One that comes without a wish takes no earlier one back.
        leftAloneUntil.withLock { $0 = max($0, clock.monotonic + rest) }
        return machine.answered(.tryLater(retryAfter: retryAfter))
    }

    /// Whether the batch comes from the suspects' install.
    var isOfSuspects: Bool { batch.envelope.installID == refusedEnvelope.installID }

    func attempt(_ batch: SourceBatch) async -> AnswerClassifier.Answer {
        let batchID = batchIDs.next(unixMilliseconds: clock.unixMilliseconds)
        var envelope = batch.envelope
        envelope.batchID = batchID
        envelope.sentAt = min(max(clock.unixMilliseconds, 0), EventLimits.maximumTime)
        let body = EventBatch(envelope: envelope, events: batch.events.map(\.bytes)).encoded()
        var request = endpoint.request(body)
        request.timeout = timeout ?? request.timeout
        mayRequestOnce = false
        let start = clock.monotonic
        let outcome = await transport.send(request)
        counts.attempts += 1
        awaitsWitness = false
        let answer = AnswerClassifier.classify(
            outcome, batchID: batchID, sent: batch.events.map(\.id), now: clock.unixMilliseconds)
        attempted(clock.monotonic - start, answer)
        return answer
    }

    /// The witness was settled when it was accepted: the server finds a duplicate, whichever install sends it, and nothing is recorded or
    /// counted.
    func testify() async -> DeliveryStateMachine.Action {
        guard let witness = witness.withLock({ $0 }) else { return machine.answered(.pause) }
        // What was granted for events that were not there holds for this one, if there is still time for it.
        if mayRequestOnce {
            guard mayRequest() else { return denied() }
        } else if let held = holdsBack() {
            return held
        }
        switch await attempt(SourceBatch(events: [witness], envelope: refusedEnvelope)) {
        case .accepted(let results):
            let isAccepted = !results.contains { $0.outcome == .retry }
            return machine.answered(isAccepted ? .accepted : .tryLater(retryAfter: nil))
        case .batchRefused: return machine.answered(.batchRefused)
        case .tryLater(let failure, let retryAfter):
            return triesLater(failure, retryAfter)
        case .pause(let failure):
            failed(failure)
            isUnanswered.withLock { $0 = true }
            return machine.answered(.pause)
        }
    }

    func settle() async -> DeliveryStateMachine.Action {
        let settlements = zip(batch.events, verdicts).compactMap { event, verdict in
            Self.fate(verdict).map { Settlement(event: event, fate: $0) }
        }
        let kept = batch.events.count - settlements.count
        guard await record(settlements) else { return machine.settlingFailed() }
        // One that was rejected would be in the dead letters and, should the server think better of it, be stored as well.
        if let accepted = settlements.last(where: { $0.fate == .stored || $0.fate == .duplicate }) {
            witness.withLock { $0 = accepted.event }
        }
        // Those of another install decide nothing about the suspects.
        if !suspects.isEmpty, !isOfSuspects { awaitsWitness = true }
        if kept == batch.events.count { isUnanswered.withLock { $0 = true } }
        if kept > 0 { failed(.askedToRetry(events: kept)) } else if !awaitsWitness { lastFailure = nil }
        return machine.settled(kept: kept, convicts: isOfSuspects, testifies: hasWitness)
    }

    func condemn() async -> DeliveryStateMachine.Action {
        guard await record(suspects) else { return machine.settlingFailed() }
        suspects = []
        lastFailure = nil
        return machine.condemned()
    }

    /// nil: the event stays where it is.
    static func fate(_ verdict: Receipt.Result) -> Settlement.Fate? {
        switch verdict.outcome {
        case .stored: .stored
        case .duplicate: .duplicate
        case .conflict, .rejected, .expired:
            .deadLetter(reason: verdict.reason ?? verdict.outcome.rawValue, detail: verdict.detail ?? "")
        case .retry: nil
        }
    }

    func record(_ settlements: [Settlement]) async -> Bool {
        do {
            if !settlements.isEmpty { try await source.settle(settlements) }
        } catch {
            failed(.queue(StorageFailure(error)))
            return false
        }
        for settlement in settlements { counts.count(settlement.fate) }
        return true
    }

    func failed(_ failure: DeliveryFailure) {
        // That we ended an attempt ourselves says less than why the one before failed.
        if failure == .transport(.aborted), lastFailure != nil { return }
        lastFailure = failure
        logger?.info("Upload failed", metadata: ["hapax.failure": "\(failure)", "hapax.events": "\(batch.events.count)"])
    }
}
