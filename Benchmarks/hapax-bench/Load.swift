import Foundation
import HapaxModel

/// Senders, each with one request under way, until every event is acknowledged.
enum Load {
    struct Figures {
        var events: Int
        var seconds: Double
        var serverCPUMicroseconds: Double?
        /// Of one answer, in milliseconds.
        var p50: Double
        var p99: Double

        var rate: Double { Double(events) / seconds }
    }

    static let connections = 16

    /// - Parameters:
    ///   - duplicates: Every how many events one is sent that was sent before.
    static func run(
        server: ServerProcess, corpus: Corpus, batchSize: Int, duplicates: Int = 100, isCompressed: Bool = false,
        connections: Int = Self.connections
    ) throws -> Figures {
        let requests = try makeRequests(corpus, batchSize: batchSize, duplicates: duplicates, port: server.port, isCompressed)
        let shared = Locked(Shared(next: 0))
        let port = server.port
        let before = server.cpuSeconds
        let start = ContinuousClock.now
        let group = DispatchGroup()
        for _ in 0..<connections {
            Thread.detachNewThread(in: group) {
                do {
                    let connection = try HTTPConnection(port: port)
                    var latencies: [Double] = []
                    while let index = shared.withLock({ $0.take(requests.count) }) {
                        let sent = ContinuousClock.now
                        let answer = try connection.send(requests[index])
                        latencies.append((ContinuousClock.now - sent) / .milliseconds(1))
                        let receipt = try Receipt(json: Array(answer))
                        shared.withLock { $0.account(receipt) }
                    }
                    shared.withLock { $0.latencies += latencies }
                } catch {
                    shared.withLock { $0.failure = "\(error)" }
                }
            }
        }
        group.wait()
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        let result = shared.withLock { $0 }
        if let failure = result.failure { throw BenchmarkError(failure) }
        // A rate of something else than storing each event once would be no rate at all.
        guard result.stored == corpus.events.count, result.stored + result.duplicates == result.received else {
            throw BenchmarkError("stored \(result.stored) and \(result.duplicates) duplicates of \(result.received) events")
        }
        let latencies = result.latencies.sorted()
        let cpu = before.flatMap { before in server.cpuSeconds.map { ($0 - before) / Double(result.received) * 1_000_000 } }
        return Figures(
            events: result.received, seconds: seconds, serverCPUMicroseconds: cpu, p50: latencies[latencies.count / 2],
            p99: latencies[latencies.count * 99 / 100])
    }

    private struct Shared {
        var next: Int
        var received = 0
        var stored = 0
        var duplicates = 0
        var latencies: [Double] = []
        var failure: String?

        mutating func take(_ count: Int) -> Int? {
            guard next < count, failure == nil else { return nil }
            defer { next += 1 }
            return next
        }

        mutating func account(_ receipt: Receipt) {
            received += receipt.received
            stored += receipt.stored
            duplicates += receipt.duplicates
        }
    }

    private static func makeRequests(
        _ corpus: Corpus, batchSize: Int, duplicates: Int, port: Int, _ isCompressed: Bool
    ) throws -> [[UInt8]] {
        var generator = UUIDv7Generator()
        var requests: [[UInt8]] = []
        var batch: [[UInt8]] = []
        func finish() throws {
            guard !batch.isEmpty else { return }
            let id = generator.next(unixMilliseconds: 1_767_225_600_000)
            let body = EventBatch(envelope: .init(batchID: id, sentAt: 1_767_225_600_000), events: batch).encoded()
            let sent = isCompressed ? try Gzip.compress(body) : body
            requests.append(HTTPConnection.request(body: sent, port: port, isCompressed: isCompressed))
            batch = []
        }
        for (index, event) in corpus.events.enumerated() {
            batch.append(event)
            if batch.count == batchSize { try finish() }
            if index % duplicates == duplicates - 1 { batch.append(corpus.events[index / 2]) }
            if batch.count == batchSize { try finish() }
        }
        try finish()
        return requests
    }
}

extension Thread {
    static func detachNewThread(in group: DispatchGroup, _ body: @escaping @Sendable () -> Void) {
        group.enter()
        detachNewThread {
            body()
            group.leave()
        }
    }
}
