import GRDB
import HapaxModel
import Testing

@testable import HapaxClient

@Suite("Delivery over a real queue (R9–R13, D1–D3, D11–D13, I1, I5, I16)", .timeLimit(.minutes(20)), .endsWhenItHangs)
struct DeliveryTests {
    @Test("a batch is valid JSON with its events as they were stored, for one and for many (D1, R4)", arguments: [1, 2, 50])
    func batchIsValidJSON(count: Int) async throws {
        let test = try TestClient()
        let ids = try await test.track(0..<count)
        let stored = try test.client.queue.nextBatch(limit: count, maximumBytes: .max, skipping: 0).events.map(\.bytes)
        #expect(await test.client.flush().stored == count)
        let batch = try #require(test.transport.batches.first)
        #expect(batch.ids == ids)
        #expect(batch.scanned.events.allSatisfy { $0.problem == nil })
        #expect(batch.scanned.events.map { Array($0.wire) } == stored)
    }

    @Test("goes on batch after batch until the queue is empty (R11, D2); each with a new batch id")
    func flushEmptiesTheQueue() async throws {
        let test = try TestClient()
        try await test.track(0..<120)
        let report = await test.client.flush()
        #expect(report.stored == 120 && report.remaining == 0 && report.failure == nil)
        #expect(test.transport.batches.map(\.ids.count) == [50, 50, 20])
        #expect(Set(test.transport.batches.map(\.scanned.envelope.batchID)).count == 3)
    }

    @Test("whatever the clock says, a batch has a time that a server takes (D15)", arguments: [-1, EventLimits.maximumTime + 1])
    func batchTimeIsPossible(now: Int64) async throws {
        let test = try TestClient()
        try await test.track(0..<1)
        test.clock.moveWallClock(by: .milliseconds(now - ManualClock.start))
        #expect(await test.client.flush().stored == 1)
        #expect(test.transport.batches.map(\.scanned.envelope.sentAt) == [min(max(now, 0), EventLimits.maximumTime)])
    }

    @Test("an event whose bytes changed on the disk becomes a dead letter, and the flush that met it reports that (R13, I3, I12)")
    func changedEventIsReported() async throws {
        let test = try TestClient()
        let ids = try await test.track(0..<2)
        try await test.client.queue.database.write { try $0.execute(sql: "UPDATE queue SET payload = x'7b7d' WHERE row = 1") }
        let report = await test.client.flush()
        #expect(report == FlushReport(stored: 1, duplicates: 0, deadLettered: 1, remaining: 0, failure: nil))
        #expect(try test.client.deadLetters.list().map(\.eventID) == [ids[0]])
        #expect(test.client.track("again", id: ids[0]) != nil)
        #expect(await test.client.flush().stored == 1, "its id is free")
        #expect(await test.client.status().isBalanced)
    }

    @Test("a witness that the server wants again, has no time for or refuses convicts nobody, and the answer is heeded (D12, D13, I16)")
    func unwillingWitnessConvictsNobody() async throws {
        for status in [nil, 401, 503] {
            let test = try TestClient { $0.batchSize = 1 }
            try await test.track(0..<2)
            let isStored = Locked(false)
            test.transport.script { batch in
                if batch.sequences == [2] { return .success(.problem(.malformed)) }
                let isWitness = isStored.withLock { isStored in
                    defer { isStored = true }
                    return isStored
                }
                if isWitness, let status { return .success(TransportAnswer(status: status, headers: ["retry-after": "60"])) }
                return .success(batch.receipt { _ in isWitness ? .retry : .stored })
            }
            let report = await test.client.flush()
            #expect(report.stored == 1 && report.deadLettered == 0 && report.remaining == 1)
            #expect(test.transport.batches.map(\.sequences) == [[1], [2], [1]])
            #expect(Set(test.transport.batches.map(\.scanned.envelope.installID)).count == 1)
            guard let status else { continue }
            #expect(report.failure == .status(status, code: nil))
            let wait = try #require(await test.client.delivery.state.nextAttempt) - test.clock.unixMilliseconds
            #expect(wait >= 60_000)
        }
    }

    @Test("each outcome has its fate (I1): stored and duplicate leave, refusals become dead letters, retry stays")
    func outcomesAreSettled() async throws {
        let test = try TestClient()
        test.transport.script { batch in
            .success(
                batch.receipt { event in
                    switch event.sequence {
                    case 2: .duplicate
                    case 3: .conflict
                    case 4: .rejected
                    case 5: .expired
                    case 6: .retry
                    default: .stored
                    }
                })
        }
        let ids = try await test.track(0..<7)
        let report = await test.client.flush()
        #expect(report == FlushReport(stored: 2, duplicates: 1, deadLettered: 3, remaining: 1, failure: .askedToRetry(events: 1)))
        #expect(try test.client.queue.nextBatch(limit: 9, maximumBytes: .max, skipping: 0).events.map(\.id) == [ids[5]])
        let letters = try test.client.deadLetters.list()
        #expect(letters.map(\.reason) == ["conflict", "rejected", "expired"])
        #expect(letters.map(\.eventID) == [ids[2], ids[3], ids[4]])
        #expect(await test.client.status().isBalanced)
    }

    @Test("only the rows of the sent batch leave, though others were tracked meanwhile (D3)")
    func eventsTrackedMeanwhileStay() async throws {
        let test = try TestClient { $0.batchSize = 2 }
        let client = test.client
        test.transport.script { batch in
            if batch.sequences == [1, 2] {
                client.track("meanwhile")
                try? await client.writer.barrier()
                return .success(batch.receipt())
            }
            return .failure(.cut)
        }
        try await test.track(0..<2)
        let report = await test.client.flush()
        #expect(report.stored == 2 && report.remaining == 1)
        #expect(test.transport.batches.map(\.sequences) == [[1, 2], [3]])
    }

    static let unknown: [Result<TransportAnswer, TransportFailure>] =
        [.failure(.timedOut), .failure(.cut)]
        + [200, 204, 301, 400, 401, 402, 403, 404, 405, 408, 410, 413, 415, 425, 429, 431, 500, 502, 503, 504]
        .map { .success(TransportAnswer(status: $0, headers: ["content-type": "text/html"], body: Array("<html>".utf8))) }

    @Test("whatever comes back, and however often, nothing leaves the queue without our receipt (I5, D12)", arguments: unknown.indices)
    func nothingLeavesWithoutAReceipt(index: Int) async throws {
        let answer = Self.unknown[index]
        let test = try TestClient(transport: ScriptedTransport { _ in answer })
        try await test.track(0..<3)
        for _ in 0..<20 { #expect(await test.client.flush().failure != nil) }
        #expect(test.transport.batches.count == 20, "one request for each call, no storm (I16)")
        #expect(await test.client.status().depth == 3)
        #expect(try test.client.deadLetters.count() == 0)
        test.transport.script { .success($0.receipt()) }
        #expect(await test.client.flush().stored == 3)
    }

    @Test("our own refusal of everything costs no event (D12)")
    func serverThatRefusesEverythingCostsNothing() async throws {
        let test = try TestClient(transport: ScriptedTransport { _ in .success(.problem(.malformed)) })
        try await test.track(0..<60)
        #expect(await test.client.flush().remaining == 60)
        #expect(test.transport.batches.count < 30)
        #expect(try test.client.deadLetters.count() == 0)
    }

    @Test("one poison event goes to the dead letters, and the others arrive in order (D13, I8)", arguments: [0, 1, 24, 37, 49, 50, 119])
    func poisonEventIsIsolated(place: Int) async throws {
        let poison = Int64(place + 1)
        let test = try TestClient(
            transport: ScriptedTransport { batch in
                batch.sequences.contains(poison) ? .success(.problem(.bodyTooLarge)) : .success(batch.receipt())
            })
        let ids = try await test.track(0..<120)
        #expect(await test.client.flush() == FlushReport(stored: 119, duplicates: 0, deadLettered: 1, remaining: 0, failure: nil))
        let letters = try test.client.deadLetters.list()
        #expect(letters.map(\.eventID) == [ids[place]])
        #expect(letters.map(\.reason) == ["body_too_large"])
        #expect(await test.client.status().isBalanced)
    }

    @Test("a poison event that is alone stays until the server accepts another (D12, D13)")
    func lonelyPoisonEventWaitsForAProof() async throws {
        let test = try TestClient(
            transport: ScriptedTransport { batch in
                batch.sequences.contains(1) ? .success(.problem(.malformed)) : .success(batch.receipt())
            })
        try await test.track(0..<1)
        for _ in 0..<3 { #expect(await test.client.flush().remaining == 1) }
        #expect(try test.client.deadLetters.count() == 0)
        try await test.track(1..<2)
        #expect(await test.client.flush() == FlushReport(stored: 1, duplicates: 0, deadLettered: 1, remaining: 0, failure: nil))
    }

    @Test("one acceptance, then a server that refuses everything: it costs the one culprit at most, and no storm (D12, I16)")
    func oneAcceptanceIsNotALicence() async throws {
        let accepted = Locked(0)
        let test = try TestClient(
            transport: ScriptedTransport { batch in
                let isFirst = accepted.withLock { count in
                    guard count == 0, !batch.sequences.contains(1) else { return false }
                    count += 1
                    return true
                }
                return .success(isFirst ? batch.receipt() : .problem(.malformed))
            })
        let ids = try await test.track(0..<31)
        _ = await test.client.flush()
        #expect(try test.client.deadLetters.list().map(\.eventID) == [ids[0]])
        #expect(await test.client.status().depth == 29)
        #expect(test.transport.batches.count < 40)
        for _ in 0..<5 { _ = await test.client.flush() }
        #expect(try test.client.deadLetters.count() == 1)
    }

    @Test("forty poison events at the head do not block the queue for ever (D13)")
    func longRowOfPoisonIsPassed() async throws {
        let test = try TestClient(
            transport: ScriptedTransport { batch in
                batch.sequences.contains { $0 <= 40 } ? .success(.problem(.malformed)) : .success(batch.receipt())
            })
        let ids = try await test.track(0..<60)
        var flushes = 1
        while await test.client.flush().remaining > 0, flushes < 10 { flushes += 1 }
        #expect(flushes <= 4)
        #expect(try test.client.deadLetters.list().map(\.eventID) == Array(ids[..<40]))
        #expect(await test.client.status().stored == 20)
    }

    @Test("several poison events in a row do not block the queue (D13)")
    func neighbouringPoisonEventsAreIsolated() async throws {
        let test = try TestClient(
            transport: ScriptedTransport { batch in
                batch.sequences.contains { (1...5).contains($0) } ? .success(.problem(.malformed)) : .success(batch.receipt())
            })
        let ids = try await test.track(0..<60)
        #expect(await test.client.flush().remaining == 0)
        #expect(try test.client.deadLetters.list().map(\.eventID) == Array(ids[..<5]))
    }

    @Test("during a backoff new events send nothing (D11), and the next attempt comes by itself (I15)")
    func backoffIsRespected() async throws {
        let test = try TestClient {
            $0.uploadsAutomatically = true
            $0.flushBulkSize = 1
            $0.flushInterval = .seconds(3_600)
        }
        test.transport.script { _ in .success(TransportAnswer(status: 503, headers: ["retry-after": "20"])) }
        try await test.track(0..<1)
        await test.transport.requests(1)
        await test.client.delivery.restBegins()
        try await test.track(1..<500)
        // Time for the wishes to come to the delivery; without it the test would only see less.
        for _ in 0..<1_000 where test.transport.batches.count == 1 { await Task.detached {}.value }
        await test.client.delivery.restBegins()
        #expect(test.transport.batches.count == 1)
        let status = await test.client.status()
        #expect(status.failure == .status(503, code: nil))
        #expect(try #require(status.nextAttempt) >= ManualClock.start + 20_000)
        test.transport.script { .success($0.receipt()) }
        test.clock.advance(by: .seconds(22))
        await test.transport.requests(11)
        #expect(test.transport.batches.dropFirst().flatMap(\.sequences) == Array(1...500))
    }

    @Test("a pause is probed every five minutes")
    func pauseIsProbed() async throws {
        let test = try TestClient(transport: ScriptedTransport { _ in .success(.problem(.unknownKey)) }) { $0.uploadOnlyInBackground() }
        try await test.track(0..<1)
        #expect(await test.client.flush().failure == .status(401, code: "unknown_key"))
        #expect(test.clock.pending.filter { $0 != EventClient.Configuration.farAway } == [.seconds(300)])
        test.transport.script { .success($0.receipt()) }
        test.clock.advance(by: .seconds(300))
        await test.transport.requests(2)
        await test.client.delivery.restBegins()
        #expect(await test.client.status().depth == 0)
    }

    @Test("an answer lost after the server stored: sent again under the same ids, settled as duplicates (R40)")
    func lostAnswerIsADuplicate() async throws {
        let test = try TestClient(transport: ScriptedTransport { _ in .failure(.cut) })
        let ids = try await test.track(0..<3)
        #expect(await test.client.flush().failure == .transport(.cut))
        test.transport.script { .success($0.receipt { _ in .duplicate }) }
        let report = await test.client.flush()
        #expect(report == FlushReport(stored: 0, duplicates: 3, deadLettered: 0, remaining: 0, failure: nil))
        #expect(test.transport.batches.map(\.ids) == [ids, ids])
        let batchIDs = test.transport.batches.map(\.scanned.envelope.batchID)
        #expect(batchIDs[0] != batchIDs[1])
    }

    @Test("a receipt that cannot be recorded leaves its events, and they are sent again (R11, R40)")
    func unrecordedReceiptIsSentAgain() async throws {
        let test = try TestClient()
        try await test.track(0..<2)
        // Only now, between reading and settling: each read lets the connection write again.
        test.transport.script { batch in
            try? test.refuseCommits(true)
            return .success(batch.receipt())
        }
        let report = await test.client.flush()
        #expect(report.remaining == 2)
        guard case .queue = report.failure else {
            Issue.record("the failure is the queue's")
            return
        }
        try test.refuseCommits(false)
        test.transport.script { .success($0.receipt { _ in .duplicate }) }
        #expect(await test.client.flush().remaining == 0)
        #expect(test.transport.batches.map(\.sequences) == [[1, 2], [1, 2]])
    }

    @Test("flushes that come together share one pass (R9), and one reports it (R13)")
    func concurrentFlushesShareAPass() async throws {
        let test = try TestClient()
        try await test.track(0..<30)
        let reports = await withTaskGroup(of: FlushReport.self) { group in
            for _ in 0..<10 { group.addTask { await test.client.flush() } }
            return await group.reduce(into: [FlushReport]()) { $0.append($1) }
        }
        #expect(reports.allSatisfy { $0.remaining == 0 })
        #expect(reports.reduce(0) { $0 + $1.stored } == 30)
        #expect(test.transport.batches.flatMap(\.sequences) == Array(1...30))
    }

    @Test("large bodies travel compressed, small ones as they are")
    func largeBodiesAreCompressed() async throws {
        let test = try TestClient()
        try await test.track(0..<1)
        _ = await test.client.flush()
        try await test.track(1..<50)
        _ = await test.client.flush()
        let encodings = test.transport.batches.map { $0.request.headers.contains { $0.name == "Content-Encoding" } }
        #expect(encodings == [false, true])
    }

    @Test("a client's batch stays within its byte limit (R10)")
    func batchObeysTheByteLimit() async throws {
        let test = try TestClient()
        for _ in 0..<40 { test.client.track("large", properties: ["x": .string(String(repeating: "x", count: 30_000))]) }
        #expect(await test.client.flush().stored == 40)
        #expect(test.transport.batches.count > 1)
        #expect(test.transport.batches.allSatisfy { $0.body.count <= EventLimits.maximumClientBatchBytes })
    }
}
