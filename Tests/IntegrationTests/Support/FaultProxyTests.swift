import Foundation
import HapaxModel
import TestSupport
import Testing

/// The proxy must do each fault, and must not say that it did one that it did not: every proof stands on that.
@Suite(.endsWhenItHangs)
struct FaultProxyTests {
    private let server: TinyServer
    private let proxy: FaultProxy
    private let ids: [EventID]
    private let batch: EventBatch
    private let request: [UInt8]

    init() throws {
        server = try TinyServer()
        proxy = try FaultProxy(to: server.port)
        var generator = UUIDv7Generator()
        ids = (0..<3).map { _ in generator.next(unixMilliseconds: 1_763_680_000_000) }
        let events = ids.map { Event(id: $0, name: "e", time: 1, distinctID: "u").encoded().bytes }
        batch = EventBatch(envelope: .init(batchID: generator.next(unixMilliseconds: 1_763_680_000_000)), events: events)
        request = RawHTTP.request("POST", "/v1/events", body: batch.encoded())
    }

    /// Sends the request on its own connection and returns the receipt that comes back, if one does.
    private func send() async throws -> Receipt {
        let connection = try await RawHTTP(port: proxy.port)
        try await connection.send(request)
        return try Receipt(json: try await connection.answer().body)
    }

    @Test func passHandsOnBothWays() async throws {
        let receipt = try await send()
        #expect(receipt.stored == 3)
        await proxy.wait { $0.exchanges.count == 1 }
        let exchange = try #require(proxy.tally.exchanges.first)
        #expect(exchange.wasDelivered && exchange.didHappen)
        #expect(exchange.request.eventIDs == ids)
        #expect(exchange.request.batchID == receipt.batchID)
        #expect(exchange.request.message.bytes == request)
        #expect(proxy.tally.lost.isEmpty)
    }

    @Test func severalRequestsGoOverOneConnection() async throws {
        let connection = try await RawHTTP(port: proxy.port)
        for expected in [3, 0] {
            try await connection.send(request)
            let receipt = try Receipt(json: try await connection.answer().body)
            #expect(receipt.stored == expected)
        }
        await proxy.wait { $0.exchanges.count == 2 }
        #expect(proxy.tally.exchanges.map(\.request.attempt) == [0, 1])
        #expect(proxy.tally.total(.stored) == 3)
        #expect(proxy.tally.total(.duplicate) == 3)
    }

    @Test func droppedAnswerWasGivenByTheServer() async throws {
        proxy.follow(.script([.dropAnswer]))
        await #expect(throws: HTTPReader.Failure.cut(received: 0)) { try await send() }
        await proxy.wait { $0.happened(.dropAnswer) == 1 }
        #expect(server.seen.ids == Set(ids))
        #expect(proxy.tally.storedInLostAnswers == 3)
        let again = try await send()
        #expect(again.duplicates == 3)
    }

    @Test func cutRequestNeverReachesTheServerWhole() async throws {
        proxy.follow(.script([.cutRequest(after: request.count - 1)]))
        await #expect(throws: (any Error).self) { try await send() }
        await proxy.wait { $0.happened(.cutRequest) == 1 }
        try await blocking { server.cutSeen.blockUntilOpen() }
        #expect(server.seen.requests == 0)
        #expect(server.seen.cutRequests == 1)
        #expect(proxy.tally.lost.isEmpty)
    }

    @Test(arguments: [0, 10, 60])
    func cutAnswerEndsAtThatByte(count: Int) async throws {
        proxy.follow(.script([.cutAnswer(after: count)]))
        await #expect(throws: HTTPReader.Failure.cut(received: count)) { try await send() }
        await proxy.wait { $0.happened(.cutAnswer) == 1 }
        #expect(proxy.tally.storedInLostAnswers == 3)
    }

    @Test("control: a cut behind the end of a message is passed on and not counted")
    func cutBehindTheEndDoesNotCount() async throws {
        proxy.follow(.script([.cutRequest(after: request.count), .cutAnswer(after: 100_000)]))
        _ = try await send()
        _ = try await send()
        await proxy.wait { $0.exchanges.count == 2 }
        #expect(proxy.tally.happened(.cutRequest) == 0)
        #expect(proxy.tally.happened(.cutAnswer) == 0)
        #expect(proxy.tally.exchanges.filter(\.wasDelivered).count == 2)
    }

    @Test func delayedAnswerComesWhenTheGateOpens() async throws {
        let gate = Gate()
        proxy.follow(.script([.delayAnswer(until: gate)]))
        async let receipt = send()
        await gate.waitForArrivals(1)
        // The server has answered, and the client has nothing yet.
        #expect(server.seen.requests == 1)
        #expect(proxy.tally.exchanges.isEmpty)
        gate.open()
        let stored = try await receipt.stored
        #expect(stored == 3)
        await proxy.wait { $0.happened(.delayAnswer) == 1 }
    }

    @Test("control: a gate that was open already delays nothing")
    func openGateDoesNotCount() async throws {
        let gate = Gate()
        gate.open()
        proxy.follow(.script([.delayAnswer(until: gate)]))
        _ = try await send()
        await proxy.wait { $0.exchanges.count == 1 }
        #expect(proxy.tally.happened(.delayAnswer) == 0)
    }

    @Test(arguments: [false, true])
    func replayReachesTheServerThatManyTimesMore(atOnce: Bool) async throws {
        proxy.follow(.script([.replay(copies: 2, atOnce: atOnce, delivering: .last)]))
        let receipt = try await send()
        await proxy.wait { $0.happened(.replay) == 1 }
        #expect(server.seen.requests == 3)
        #expect(proxy.tally.total(.stored) == 3)
        #expect(proxy.tally.total(.duplicate) == 6)
        if !atOnce { #expect(receipt.duplicates == 3) }
    }

    @Test func resetBeforeTheRequestLeavesTheServerUntouched() async throws {
        proxy.follow(.script([.resetBeforeRequest]))
        await #expect(throws: LoopbackSocket.Failure.system(.init("recv", ECONNRESET))) { try await send() }
        await proxy.wait { $0.happened(.resetBeforeRequest) == 1 }
        #expect(server.seen.requests == 0)
    }

    @Test func resetAfterTheAnswerHidesACommit() async throws {
        proxy.follow(.script([.resetAfterAnswer]))
        await #expect(throws: LoopbackSocket.Failure.system(.init("recv", ECONNRESET))) { try await send() }
        await proxy.wait { $0.happened(.resetAfterAnswer) == 1 }
        #expect(server.seen.ids == Set(ids))
        #expect(proxy.tally.storedInLostAnswers == 3)
    }

    @Test("control: with the server away no fault comes about")
    func faultsNeedTheServer() async throws {
        proxy.retarget(to: try LoopbackPort.unused())
        proxy.follow(.script([.dropAnswer, .replay(copies: 1), .cutRequest(after: 5), .resetAfterAnswer]))
        for _ in 0..<4 { await #expect(throws: (any Error).self) { try await send() } }
        await proxy.wait { $0.exchanges.count == 4 }
        #expect(proxy.tally.exchanges.filter(\.didHappen).isEmpty)
    }

    @Test func compressedRequestsAreReadAndHandedOnAsTheyAre() async throws {
        let body = try Gzip.compress(batch.encoded())
        let connection = try await RawHTTP(port: proxy.port)
        // The tiny server cannot read it and ends the connection; the proxy's account is what counts here.
        try await connection.send(RawHTTP.request("POST", "/v1/events", headers: ["Content-Encoding": "gzip"], body: body))
        await #expect(throws: (any Error).self) { try await connection.answer() }
        await proxy.wait { $0.exchanges.count == 1 }
        #expect(proxy.tally.exchanges.first?.request.eventIDs == ids)
        #expect(proxy.tally.exchanges.first?.request.message.body == body)
    }

    @Test func chunkedRequestsAreHandedOnAsTheyAre() async throws {
        let body = batch.encoded()
        let half = body.count / 2
        var chunks = Array("\(String(half, radix: 16))\r\n".utf8) + body[..<half] + Array("\r\n".utf8)
        chunks += Array("\(String(body.count - half, radix: 16))\r\n".utf8) + body[half...] + Array("\r\n0\r\n\r\n".utf8)
        let connection = try await RawHTTP(port: proxy.port)
        try await connection.send(RawHTTP.request("POST", "/v1/events", headers: ["Transfer-Encoding": "chunked"], body: chunks))
        let receipt = try Receipt(json: try await connection.answer().body)
        #expect(receipt.stored == 3)
    }

    @Test func stoppingEndsWaitingClients() async throws {
        let gate = Gate()
        proxy.follow(.script([.delayAnswer(until: gate)]))
        let sending = Task { try await send() }
        await gate.waitForArrivals(1)
        proxy.stop()
        await #expect(throws: (any Error).self) { try await sending.value }
        #expect(gate.isOpen)
        await #expect(throws: (any Error).self) { try await send() }
    }
}
