import Foundation
import HapaxClient
import HapaxModel
import TestSupport

/// How fast a queue drains over links that are not as good as this machine's.
struct LinksBenchmark {
    /// What lies between the client and an answer.
    private struct Link: Sendable {
        var name: String
        var events: Int
        /// Of a text in each event that gzip does not shorten much, beside which 150 more are sent; nil: events as the other measurements send them.
        var bytes: Int?
        var roundTrip = 0.0
        var bytesPerSecond = Double.infinity
        var maximumBody = Int.max
        /// Whether the first event is to be sent again for ever.
        var asksToRetry = false
    }

    private static let links = [
        Link(name: "20 ms of round trip", events: 100_000, roundTrip: 0.02),
        Link(name: "20 ms, a text that gzip does not shorten", events: 100_000, bytes: 450, roundTrip: 0.02),
        Link(name: "100 ms of round trip", events: 20_000, bytes: 450, roundTrip: 0.1),
        Link(name: "12 KB/s, events of 10 KB", events: 60, bytes: 10_000, bytesPerSecond: 12_000),
        Link(name: "a proxy that takes 100 KB", events: 20_000, bytes: 450, maximumBody: 100_000),
        Link(name: "one event that is `retry` for ever", events: 20_000, bytes: 450, asksToRetry: true),
    ]

    /// For one link; what waits then has not been drained.
    private static let limit: Duration = .seconds(100)

    func run() async throws {
        print("\n### Links: first batch of 50 events, at most \(Self.limit / .seconds(1)) s each\n")
        print("| Link | events | delivered | seconds | events/s | of the link’s limit |")
        print("|---|---|---|---|---|---|")
        for link in Self.links {
            note(link.name)
            let (delivered, seconds, limit) = try await measure(link)
            let rate = "\(seconds, places: 1) | \(Double(delivered) / seconds, places: 1) | \(limit / seconds, places: 2)"
            print("| \(link.name) | \(link.events) | \(delivered) | \(rate) |")
        }
    }

    /// - Returns: Also how long the same requests take over the same link on one connection that does nothing but wait for each answer.
    private func measure(_ link: Link) async throws -> (delivered: Int, seconds: Double, limit: Double) {
        let sent = Locked<[[UInt8]]>([])
        let listener = try LoopbackSocket.listening()
        defer { listener.shutDown() }
        let group = DispatchGroup()
        Thread.detachNewThread(in: group) {
            while let socket = try? listener.accepted() { Thread.detachNewThread(in: group) { Self.serve(socket, link, sent) } }
        }
        let directory = TemporaryDirectory("bench")
        var configuration = ClientBenchmark.configuration(queue: directory.path("queue"), port: listener.port)
        configuration.queue.mailboxCapacity = link.events + 1
        let client = try EventClient.start(configuration)
        var random = SystemRandomNumberGenerator()
        for index in 1..<link.events { client.track("order_viewed", properties: Self.properties(index, link.bytes, &random)) }
        try await client.trackDurably("order_viewed", properties: Self.properties(0, link.bytes, &random))
        let start = ContinuousClock.now
        // What is to be sent again for ever is not waited for: the last batch with others ends the measurement.
        let draining = Task { await client.shutdown(within: Self.limit) }
        let wanted = link.events - (link.asksToRetry ? 1 : 0)
        var status = await client.status()
        while Int(status.stored) < wanted, ContinuousClock.now - start < Self.limit {
            // Asked without a pause, it would take the time that it measures.
            try await Task.sleep(for: .milliseconds(20))
            status = await client.status()
        }
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        await client.shutdown(within: .zero)
        _ = await draining.value
        let requests = sent.withLock { $0 }
        let connection = try HTTPConnection(port: listener.port)
        let again = ContinuousClock.now
        for request in requests { _ = try connection.exchange(request) }
        return (Int(status.stored), seconds, (ContinuousClock.now - again) / .seconds(1))
    }

    private static func properties(_ index: Int, _ bytes: Int?, _ random: inout some RandomNumberGenerator) -> Properties {
        guard let bytes else { return Corpus.properties(index) }
        let words = (0..<bytes * 3 / 4 / 8).map { _ in random.next() }
        return ["fill": words.withUnsafeBytes { Data($0).base64EncodedString() }]
    }

    private static func serve(_ socket: LoopbackSocket, _ link: Link, _ sent: Locked<[[UInt8]]>) {
        var reader = HTTPReader(socket)
        while let request = try? reader.request() {
            sent.withLock { $0.append(request.bytes) }
            let delay = link.roundTrip + Double(request.bytes.count) / link.bytesPerSecond
            // This is the link: what it takes until the answer is there.
            if delay > 0 { Thread.sleep(forTimeInterval: delay) }
            guard (try? socket.write(answer(request, link))) != nil else { return }
        }
    }

    private static func answer(_ request: HTTPMessage, _ link: Link) -> [UInt8] {
        guard request.body.count <= link.maximumBody else { return Array("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n".utf8) }
        let plain = request["Content-Encoding"] == nil ? request.body : (try? Gzip.decompress(request.body, limit: 1 << 23)) ?? []
        guard let body = try? ScannedBody(json: plain[...]) else { return Array("HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n".utf8) }
        let results = body.events.enumerated().compactMap { index, event in
            link.asksToRetry && event.sequence == 1 ? Receipt.Result(index: index, eventID: event.id, outcome: .retry) : nil
        }
        let receipt = Receipt(
            batchID: body.envelope.batchID, received: body.events.count, stored: body.events.count - results.count, results: results
        ).encoded()
        return Array("HTTP/1.1 200 OK\r\nContent-Length: \(receipt.count)\r\n\r\n".utf8) + receipt
    }
}
