import Testing

@testable import HapaxClient

@Suite("DeliveryStateMachine (R9–R11, D2, D11–D13)", .timeLimit(.minutes(20)))
struct DeliveryStateMachineTests {
    private var machine = DeliveryStateMachine(batchSize: 50)

    /// Brings the machine to the point where `count` events are sent.
    private mutating func send(_ count: Int, limit: Int = 50) {
        #expect(machine.uploadWanted(manual: true) == .read(limit: limit, skipping: 0))
        #expect(machine.batchRead(count: count) == .send)
    }

    @Test("goes on after a successful delete until the queue is empty (R11, D2)")
    mutating func successReadsAgainUntilDrained() {
        send(50)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .read(limit: 50, skipping: 0))
        #expect(machine.batchRead(count: 3) == .send)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .read(limit: 50, skipping: 0))
        #expect(machine.batchRead(count: 0) == .rest(.drained))
    }

    @Test("one batch in flight, whoever wants an upload (R9)")
    mutating func wishesDuringAPassStartNothing() {
        send(50)
        #expect(machine.uploadWanted(manual: true) == .none)
        #expect(machine.uploadWanted(manual: false) == .none)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.uploadWanted(manual: true) == .none)
    }

    @Test("a wish while an empty queue is read is not lost")
    mutating func wishWhileReadingReadsAgain() {
        #expect(machine.uploadWanted(manual: false) == .read(limit: 50, skipping: 0))
        #expect(machine.uploadWanted(manual: false) == .none)
        #expect(machine.batchRead(count: 0) == .read(limit: 50, skipping: 0))
        #expect(machine.batchRead(count: 0) == .rest(.drained))
    }

    @Test("a failure rests; policies respect it, a caller cuts it short once (D11, I16)")
    mutating func failureRests() {
        send(50)
        #expect(machine.answered(.tryLater(retryAfter: .seconds(9))) == .rest(.backoff(failures: 1, retryAfter: .seconds(9))))
        for _ in 0..<1_000 { #expect(machine.uploadWanted(manual: false) == .none) }
        send(50)
        #expect(machine.answered(.tryLater(retryAfter: nil)) == .rest(.backoff(failures: 2, retryAfter: nil)))
        #expect(machine.waitEnded() == .read(limit: 50, skipping: 0))
        #expect(machine.waitEnded() == .none)
        #expect(machine.batchRead(count: 50) == .send)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .read(limit: 50, skipping: 0))
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.tryLater(retryAfter: nil)) == .rest(.backoff(failures: 1, retryAfter: nil)), "success resets")
    }

    @Test("a pause rests until the probe")
    mutating func pauseWaitsForTheProbe() {
        send(50)
        #expect(machine.answered(.pause) == .rest(.paused))
        #expect(machine.uploadWanted(manual: false) == .none)
        #expect(machine.waitEnded() == .read(limit: 50, skipping: 0))
    }

    @Test("what cannot be read or recorded stops the pass (R11)")
    mutating func storageTroubleBacksOff() {
        #expect(machine.uploadWanted(manual: false) == .read(limit: 50, skipping: 0))
        #expect(machine.readFailed() == .rest(.backoff(failures: 1, retryAfter: nil)))
        send(50)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settlingFailed() == .rest(.backoff(failures: 2, retryAfter: nil)))
    }

    @Test("events that the server wants again are sent after a backoff, not at once")
    mutating func keptEventsBackOff() {
        send(50)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 1) == .rest(.backoff(failures: 1, retryAfter: nil)))
    }

    @Test("a refused batch is halved; the size recovers with what is accepted")
    mutating func refusedBatchIsHalvedAndRecovers() {
        send(50)
        #expect(machine.answered(.batchRefused) == .read(limit: 25, skipping: 0))
        #expect(machine.batchRead(count: 25) == .send)
        #expect(machine.answered(.batchRefused) == .read(limit: 12, skipping: 0))
        #expect(machine.batchRead(count: 12) == .send)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .read(limit: 24, skipping: 0))
        #expect(machine.batchRead(count: 24) == .send)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .read(limit: 48, skipping: 0))
        #expect(machine.batchRead(count: 48) == .send)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .read(limit: 50, skipping: 0))
    }

    @Test("a culprit with nothing behind it is condemned only if the witness is accepted again after its refusal (D13)")
    mutating func culpritAtTheEndNeedsTheWitness() {
        send(2)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 0))
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .read(limit: 2, skipping: 0))
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 1))
        #expect(machine.batchRead(count: 0) == .testify)
        var refusing = machine
        #expect(refusing.answered(.batchRefused) == .rest(.paused))
        #expect(machine.answered(.accepted) == .condemn)
        #expect(machine.condemned() == .read(limit: 1, skipping: 0))
    }

    @Test("a receipt that wants all of its events again is no acceptance: it convicts nobody (D12)")
    mutating func retryIsNoAcceptance() {
        send(1)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 1))
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 1) == .rest(.backoff(failures: 1, retryAfter: nil)))
    }

    @Test("a condemnation uses its acceptance up: a server that refuses everything afterwards costs no more (D12)")
    mutating func acceptanceConvictsOnce() {
        culpritAtTheHeadNeedsAProof()
        var requests = 0
        var action = DeliveryStateMachine.Action.read(limit: 1, skipping: 0)
        while case .read(let limit, _) = action {
            #expect(machine.batchRead(count: limit) == .send)
            requests += 1
            action = machine.answered(.batchRefused)
        }
        #expect(action == .testify)
        #expect(requests == DeliveryStateMachine.maximumSuspects)
        #expect(machine.answered(.batchRefused) == .rest(.paused))
    }

    @Test("a culprit at the head is condemned only after an event behind it was accepted")
    mutating func culpritAtTheHeadNeedsAProof() {
        send(1)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 1))
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .condemn)
        #expect(machine.condemned() == .read(limit: 1, skipping: 0))
    }

    @Test("a culprit that stands alone is kept")
    mutating func lonelyCulpritIsKept() {
        send(1)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 1))
        #expect(machine.batchRead(count: 0) == .rest(.paused))
    }

    @Test("a server that refuses everything costs no event and is asked a bounded number of times")
    mutating func serverThatRefusesEverythingIsPaused() {
        send(50)
        var requests = 1
        var action = machine.answered(.batchRefused)
        while case .read(let limit, _) = action {
            #expect(machine.batchRead(count: limit) == .send)
            requests += 1
            action = machine.answered(.batchRefused)
        }
        #expect(action == .rest(.paused))
        #expect(requests < 30)
    }

    @Test("a failure while a culprit is sought forgets the suspects")
    mutating func failureForgetsSuspects() {
        send(1)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 1))
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.tryLater(retryAfter: nil)) == .rest(.backoff(failures: 1, retryAfter: nil)))
        #expect(machine.waitEnded() == .read(limit: 1, skipping: 0))
    }

    /// Everything is refused from here on.
    ///
    /// - Returns: How many requests it takes until that is enough, and what is done then.
    private mutating func refuse(from first: DeliveryStateMachine.Action) -> (requests: Int, action: DeliveryStateMachine.Action) {
        var (requests, action) = (0, first)
        while case .read(let limit, _) = action {
            #expect(machine.batchRead(count: limit) == .send)
            requests += 1
            action = machine.answered(.batchRefused)
        }
        return (requests, action)
    }

    @Test("an accepted event ends the search far behind the first suspect; so does an accepted witness (D13)")
    mutating func acceptanceEndsTheReach() {
        let refused = refuse(from: machine.uploadWanted(manual: true))
        #expect(refused.action == .rest(.paused))
        #expect(machine.waitEnded() == .read(limit: 1, skipping: 0))
        #expect(machine.batchRead(count: 1) == .send)
        var refusing = machine
        #expect(refusing.answered(.batchRefused) == .read(limit: 1, skipping: DeliveryStateMachine.maximumSuspects))
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .read(limit: 2, skipping: 0))
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 1))
        let refusedAgain = refuse(from: .read(limit: 1, skipping: 1))
        #expect(refusedAgain.action == .testify)
        #expect(machine.answered(.accepted) == .condemn)
        #expect(machine.condemned() == .read(limit: 1, skipping: 0))
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 1))
    }

    @Test("a pass looks behind what earlier passes found, wherever they ended, and tries as many as another (D13)")
    mutating func searchBeginsAnew() {
        let reach = DeliveryStateMachine.maximumSuspects
        _ = refuse(from: machine.uploadWanted(manual: true))
        #expect(machine.waitEnded() == .read(limit: 1, skipping: 0))
        #expect(machine.batchRead(count: 1) == .send)
        for behind in [reach, reach + 1] {
            #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: behind))
            #expect(machine.batchRead(count: 1) == .send)
        }
        var failing = machine
        #expect(failing.answered(.tryLater(retryAfter: nil)) == .rest(.backoff(failures: 1, retryAfter: nil)))
        #expect(failing.waitEnded() == .read(limit: 1, skipping: 0))
        #expect(failing.batchRead(count: 1) == .send)
        #expect(failing.answered(.batchRefused) == .read(limit: 1, skipping: reach))
        #expect(machine.answered(.accepted) == .settle)
        #expect(machine.settled(kept: 0) == .condemn)
        let again = refuse(from: machine.condemned())
        #expect(again.requests == reach && again.action == .testify)
        #expect(machine.answered(.tryLater(retryAfter: .seconds(9))) == .rest(.backoff(failures: 1, retryAfter: .seconds(9))))
    }

    @Test("a condemnation is a success, behind which backoffs begin anew; so they do when somebody has little time (D11, R38)")
    mutating func failuresEnd() {
        for failures in [1, 2, 1] {
            if failures == 1 { machine.failuresForgiven() }
            send(50)
            #expect(machine.answered(.tryLater(retryAfter: nil)) == .rest(.backoff(failures: failures, retryAfter: nil)))
        }
        culpritAtTheHeadNeedsAProof()
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.tryLater(retryAfter: nil)) == .rest(.backoff(failures: 1, retryAfter: nil)))
    }

    @Test("when events are removed meanwhile nobody is suspected any more (D13, D16)")
    mutating func changedSourceHasNoSuspects() {
        send(1)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 1))
        #expect(machine.held() == .rest(.held))
        var unchanged = machine
        #expect(unchanged.uploadWanted(manual: true) == .read(limit: 1, skipping: 1))
        machine.sourceChanged()
        #expect(machine.uploadWanted(manual: true) == .read(limit: 1, skipping: 0))
    }

    @Test("a witness that may not be called now is called by the next pass; if nothing may be sent at all, nobody is suspected (R28, R31)")
    mutating func owedTestimonyIsGivenLater() {
        send(50)
        #expect(machine.answered(.accepted) == .settle)
        #expect(refuse(from: machine.settled(kept: 0)).action == .testify)
        var denied = machine
        #expect(denied.denied() == .rest(.held))
        #expect(denied.uploadWanted(manual: true) == .read(limit: 1, skipping: 0))
        #expect(machine.held() == .rest(.held))
        var forgotten = machine
        forgotten.suspicionEnded()
        #expect(forgotten.uploadWanted(manual: true) == .read(limit: 1, skipping: 0))
        #expect(machine.uploadWanted(manual: true) == .testify)
        #expect(machine.answered(.accepted) == .condemn)
        #expect(machine.condemned() == .read(limit: 1, skipping: 0))
        #expect(machine.held() == .rest(.held))
        #expect(machine.uploadWanted(manual: true) == .read(limit: 1, skipping: 0))
    }

    @Test("nor is it known then how far the server refuses what waits, or that it takes anything (D13, D16)")
    mutating func changedSourceIsUnknown() {
        send(50)
        #expect(machine.answered(.accepted) == .settle)
        #expect(refuse(from: machine.settled(kept: 0)).action == .testify)
        #expect(machine.answered(.pause) == .rest(.paused))
        machine.sourceChanged()
        #expect(machine.waitEnded() == .read(limit: 1, skipping: 0))
        #expect(machine.batchRead(count: 1) == .send)
        #expect(machine.answered(.batchRefused) == .read(limit: 1, skipping: 1))
        #expect(machine.batchRead(count: 0) == .rest(.paused))
    }

    @Test("a batch has an event at least, whatever its size is set to")
    func batchesAreNotEmpty() {
        var machine = DeliveryStateMachine(batchSize: 0)
        #expect(machine.uploadWanted(manual: true) == .read(limit: 1, skipping: 0))
    }

    @Test("what ends behind a stop leads to nothing (D7)")
    mutating func stoppedMachineDoesNothing() {
        #expect(machine.uploadWanted(manual: true) == .read(limit: 50, skipping: 0))
        #expect(machine.stop() == .rest(.stopped))
        #expect(machine.batchRead(count: 50) == .none)
        #expect(machine.held() == .none && machine.readFailed() == .none)
        #expect(machine.answered(.accepted) == .none)
        #expect(machine.settled(kept: 0) == .none && machine.settlingFailed() == .none && machine.condemned() == .none)
        #expect(machine.waitEnded() == .none)
        #expect(machine.uploadWanted(manual: true) == .none)
    }
}
