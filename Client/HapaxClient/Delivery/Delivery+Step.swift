import HapaxModel
import Logging

/// One step: a batch is read, sent, and settled in one transaction.
extension Delivery {
    func attempt(
        _ file: QueueFile, isManual: Bool, upTo bound: Bound? = nil, asksProject: Bool = false,
        permission: (@Sendable () -> RequestPermission)?
    ) async -> Step {
        if isStopped { return Step(next: .stopped, failure: .shutDown) }
        let (install, consent) = (file.counters.installID, parts.consent())
        do {
            if try file.decidePending(consent) { parts.settled([], file === self.file ? .own : .all) }
        } catch {
            return failed(Step(next: .more), error, file, was: install)
        }
        if !isManual, isResting { return Step(next: .held) }
        if consent.consent == .pending || consent.decisions == nil {
            let isAny = file.counters.waiting > 0 || file.isRecovering
            return Step(next: isAny ? .denied : .drained, failure: isAny ? .consentPending : nil)
        }
        var step = Step(next: .more)
        var (plan, batch): (DeliveryStateMachine.Plan, QueueBatch)
        let recoveryFailure = recover(file, consent)
        do {
            (plan, batch) = try read(file, isManual: isManual)
            if asksProject, plan == .drained, file.counters.pendingFrom == 0 {
                plan = .batch(.none)
                batch = try file.nextBatch(.none, maximumBytes: parts.endpoint.maximumBatchBytes, now: parts.clock.unixMilliseconds)
            }
        } catch {
            return failed(step, error, file, was: install)
        }
        step.counts.deadLettered = batch.damaged.count
        // While consent is denied, a report goes only with events that the user had agreed to.
        if plan == .batch(.none), consent.consent == .denied { plan = .drained }
        switch plan {
        case .batch: break
        case .drained, .onlyHeld:
            guard file.isRecovering else {
                step.next = plan == .drained ? .drained : .onlyHeld
                if plan == .onlyHeld { step.failure = lastRefusal } else if file.counters.pendingFrom > 0 { step.failure = .consentPending }
                return step
            }
            step.failure = recoveryFailure
            return recoveryFailure == nil ? step : backingOff(step)
        }
        if let bound, batch.install == bound.install, !batch.events.isEmpty {
            batch.events.removeAll { $0.sequence > bound.sequence }
            if batch.events.isEmpty {
                let isAnyBack = machine(of: file) { $0.takeBack(upTo: bound.sequence) }
                return Step(next: isAnyBack ? .more : .held, counts: step.counts, failure: isAnyBack ? nil : blockedBefore(file))
            }
        }
        switch permission?() {
        case .denied?: return Step(next: .denied, counts: step.counts)
        case .unwanted?: return Step(next: .held, counts: step.counts)
        default: break
        }
        guard case .granted(let timeout) = parts.gate(isManual) else {
            // A policy tries again by itself; who asked must learn of it.
            return Step(next: .denied, counts: step.counts, failure: isManual ? .noBackgroundTime : nil)
        }
        // Decided, or asked, meanwhile: what was read may hold, or count, what waited.
        guard parts.consent() == consent else { return Step(next: .more, counts: step.counts) }
        let deadline = timeout ?? parts.endpoint.timeout
        // Events that do not fit a shorter deadline stay where they are.
        let limit = size.limit(within: deadline, of: parts.endpoint.timeout)
        batch.events.removeLast(max(batch.events.count - limit, 0))
        let isPlain = !compresses || machine(of: file) { $0.goesPlain(file.counters) }
        let (answer, time, detail, isCompressed) = await send(batch, timeout: deadline, compresses: !isPlain)
        step.counts.attempts += 1
        step.detail = detail
        if case .accepted = answer { size.answered(after: time, within: deadline, wasFull: batch.events.count >= limit) }
        return received(answer, batch, limit: limit, wasHeld: plan == .batch(.held), isCompressed: isCompressed, file, step)
    }

    /// Why events of a file do not pass that come before what the pass is about.
    private func blockedBefore(_ file: QueueFile) -> DeliveryFailure? { machine(of: file) { $0.blocksAny } ? lastRefusal : nil }

    /// A file that was damaged has been replaced, and what can be read of it is sent next. A disk that damages one after the other is left alone
    /// for a while.
    private func failed(_ before: Step, _ error: any Error, _ file: QueueFile, was install: EventID?) -> Step {
        var step = before
        step.failure = .queue(StorageFailure(error))
        guard file.counters.installID != install, failures < Self.maximumReplacements else { return backingOff(step) }
        failures += 1
        step.next = .more
        return step
    }

    private static let maximumReplacements = 3

    /// A chunk of what a damaged file held. What cannot be recovered now, as on a full disk, keeps nothing else back.
    private func recover(_ file: QueueFile, _ consent: KeptConsent) -> DeliveryFailure? {
        guard file.isRecovering else { return nil }
        do {
            let origin = Origin(isOwn: file === self.file)
            _ = try file.recoverChunk(now: parts.clock.unixMilliseconds, consent: consent) { parts.makeEvent($0, $1, $2, origin) }
            return nil
        } catch {
            return .queue(StorageFailure(error))
        }
    }

    private func read(_ file: QueueFile, isManual: Bool) throws -> (DeliveryStateMachine.Plan, QueueBatch) {
        let now = parts.clock.unixMilliseconds
        if try file.removeDue(now: now) { parts.settled([], .own) }
        var damaged: [Settlement] = []
        // Until something is found: all of a batch may have been damaged, and damage of the file makes another one take over.
        while true {
            let plan = machine(of: file) {
                $0.plan(file.counters, isManual: isManual, accepted: acceptedBatches, now: parts.clock.monotonic)
            }
            guard case .batch(var kind) = plan else { return (plan, QueueBatch(damaged: damaged)) }
            if case .oldest(let limit, let aside) = kind { kind = .oldest(limit: min(limit, size.events), besides: aside) }
            var batch = try file.nextBatch(kind, maximumBytes: parts.endpoint.maximumBatchBytes, now: now)
            if !batch.damaged.isEmpty { parts.settled(batch.damaged, file === self.file ? .own : .all) }
            damaged += batch.damaged
            batch.damaged = damaged
            if !batch.events.isEmpty || kind == .none { return (plan, batch) }
            // All of them wait for the user's consent.
            if file.counters.pendingFrom > 0 { return (.drained, batch) }
        }
    }

    func machine<Value>(of file: QueueFile, _ body: (inout DeliveryStateMachine) -> Value) -> Value {
        body(&machines[file.counters.installID, default: DeliveryStateMachine(batchSize: EventLimits.maximumEventsPerBatch)])
    }

    private func send(
        _ batch: QueueBatch, timeout: Duration, compresses: Bool
    ) async -> (AnswerClassifier.Answer, Duration, detail: String?, isCompressed: Bool) {
        let batchID = batchIDs.next(unixMilliseconds: parts.clock.unixMilliseconds)
        var envelope = batch.report.envelope
        envelope.batchID = batchID
        envelope.sentAt = min(max(parts.clock.unixMilliseconds, 0), EventLimits.maximumTime)
        var request = parts.endpoint.request(
            EventBatch(envelope: envelope, events: batch.events.map(\.wire)).encoded(), compresses: compresses)
        request.timeout = timeout
        let start = parts.clock.monotonic
        let outcome = await parts.transport.send(request)
        let answer = AnswerClassifier.classify(
            outcome, batchID: batchID, sent: batch.events.map(\.id), now: parts.clock.unixMilliseconds)
        let time = parts.clock.monotonic - start
        parts.attempted(time, answer)
        let isCompressed = request.headers.contains { $0.name == "Content-Encoding" }
        return (answer, time, AnswerClassifier.detail(of: outcome, without: parts.endpoint.key), isCompressed)
    }

    private func received(
        _ answer: AnswerClassifier.Answer, _ batch: QueueBatch, limit: Int, wasHeld: Bool, isCompressed: Bool, _ file: QueueFile,
        _ before: Step
    ) -> Step {
        var step = before
        machine(of: file) { $0.requested(now: parts.clock.monotonic) }
        do {
            switch answer {
            case .accepted(let verdicts, let project):
                if let project { parts.named(project) }
                if machine(of: file, { $0.doubtsCompression }) { compressionFails() }
                if !isCompressed, verdicts.contains(where: { Self.fate($0) != nil }) { acceptedBatches += 1 }
                return try settle(verdicts, batch, wasHeld: wasHeld, file, step)
            case .batchRefused(let code):
                step.failure = .status(code.status, code: code.rawValue)
                lastRefusal = step.failure
                if isCompressed, code == .invalidEncoding {
                    compressionFails()
                    return step
                }
                // What is no gzip though it was sent plain says nothing about an event.
                guard let first = batch.events.first?.sequence, code != .invalidEncoding else {
                    step.next = .pause(DeliveryStateMachine.probeInterval)
                    return step
                }
                if isCompressed, code == .malformed || batch.events.count == 1 {
                    machine(of: file) { $0.refusedCompressed() }
                    return step
                }
                let next = machine(of: file) {
                    $0.refused(
                        count: batch.events.count, first: first, code, wasHeld: wasHeld, accepted: acceptedBatches)
                }
                if next == .more { return step }
                if next == .bury {
                    let outcome = BatchOutcome(install: batch.install, buried: [first: Self.reason(code)])
                    _ = record(try file.settle(outcome, now: parts.clock.unixMilliseconds), file, &step)
                    return step
                }
                try file.hold(first, of: batch.install)
                // What others have left keeps nobody else waiting.
                if next == .holdAndPause { step.next = file === self.file ? .pause(DeliveryStateMachine.probeInterval) : .onlyHeld }
                return step
            case .tooMuch(let failure):
                step.failure = failure
                let mayShrink = size.wasTooMuch(batch.events.count, of: limit)
                // A time-out may be an outage, a limit stays.
                if case .transport = failure { return mayShrink ? step : backingOff(step) }
                return blocked(failure, batch, wasHeld: wasHeld, file, step)
            case .blocked(let failure):
                step.failure = failure
                if isCompressed, batch.events.count == 1 {
                    machine(of: file) { $0.refusedCompressed() }
                    return step
                }
                return blocked(failure, batch, wasHeld: wasHeld, file, step)
            case .tryLater(let failure, let retryAfter):
                step.failure = failure
                return backingOff(step, retryAfter)
            case .pause(let failure):
                step.failure = failure
                if isCompressed, case .status(415, _) = failure {
                    compressionFails()
                    return step
                }
                step.next = .pause(DeliveryStateMachine.probeInterval)
                return step
            }
        } catch {
            return failed(step, error, file, was: batch.install)
        }
    }

    /// Something between client and server has refused the request: what passes goes on.
    private func blocked(_ failure: DeliveryFailure, _ batch: QueueBatch, wasHeld: Bool, _ file: QueueFile, _ before: Step) -> Step {
        var step = before
        lastRefusal = failure
        let sequences = batch.events.map(\.sequence)
        let detour: DeliveryStateMachine.Detour =
            wasHeld
            ? .onlyBlocked : sequences.isEmpty ? .pause : machine(of: file) { $0.blocked(sequences, sendable: file.counters.sendable) }
        switch detour {
        case .more: break
        case .onlyBlocked: step.next = .onlyHeld
        case .pause: step.next = .pause(DeliveryStateMachine.probeInterval)
        }
        return step
    }

    /// Until the process ends: a proxy that unpacks bodies and leaves their header does so with all of them.
    private func compressionFails() {
        compresses = false
        parts.logger?.warning(
            "Compressed requests are refused, and the same ones pass uncompressed, as behind a proxy that unpacks them: from now on none is compressed",
            metadata: ["hapax.server": "\(parts.endpoint.baseURL)"])
    }

    private func settle(
        _ verdicts: [Receipt.Result], _ batch: QueueBatch, wasHeld: Bool, _ file: QueueFile, _ before: Step
    ) throws -> Step {
        var step = before
        var outcome = BatchOutcome(install: batch.install, report: batch.report)
        outcome.settlements = zip(batch.events, verdicts).compactMap { event, verdict in
            Self.fate(verdict).map { Settlement(event: event, fate: $0) }
        }
        let settled = Set(outcome.settlements.map(\.event.sequence))
        if case .bury(let suspects) = machine(of: file, { $0.accepted(outcome.settlements.count) }) {
            // One of them may be what the server has accepted.
            for (sequence, code) in suspects where !settled.contains(sequence) {
                outcome.buried[sequence] = Self.reason(code)
            }
            outcome.releasesHeld = true
        }
        let released = record(try file.settle(outcome, now: parts.clock.unixMilliseconds), file, &step)
        machine(of: file) {
            $0.released(released)
            $0.passed(settled)
        }
        let kept = batch.events.map(\.sequence).filter { !settled.contains($0) }
        if !wasHeld { machine(of: file) { $0.kept(kept) } }
        // What was settled is a success, and the others go on without those that were kept. A server that keeps most of a batch is in trouble.
        guard kept.count > settled.count else { return step }
        step.failure = .askedToRetry(events: kept.count)
        return backingOff(step)
    }

    private static func reason(_ code: RequestProblem.Code) -> (reason: String, detail: String) {
        (code.rawValue, "\(DeliveryFailure.status(code.status, code: code.rawValue))")
    }

    /// - Returns: Held events that are tried again.
    private func record(_ done: (settled: [Settlement], released: [Int64]), _ file: QueueFile, _ step: inout Step) -> [Int64] {
        for settlement in done.settled { step.counts.count(settlement.fate) }
        parts.settled(done.settled, file === self.file ? .own : .all)
        return done.released
    }

    /// nil: the event stays where it is.
    private static func fate(_ verdict: Receipt.Result) -> Settlement.Fate? {
        switch verdict.outcome {
        case .stored: .stored
        case .duplicate: .duplicate
        case .conflict, .rejected, .expired:
            .deadLetter(
                reason: String((verdict.reason ?? verdict.outcome.rawValue).prefix(64)), detail: String((verdict.detail ?? "").prefix(500)))
        case .retry: nil
        }
    }
}
