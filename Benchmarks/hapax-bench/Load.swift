import Foundation
import HapaxModel

/// Requests that are made ahead, and senders that send them, each with one request under way, until every event is acknowledged.
struct Load {
    struct Figures {
        var events: Int
        var seconds: Double
        /// Of the server, of each event.
        var serverCPUMicroseconds: Double
        /// Of this process: what sending the requests and reading the answers takes.
        var loadCPUMicroseconds: Double
        /// Of one answer, in milliseconds.
        var p50: Double
        var p99: Double
        var slowest: Double

        var rate: Double { Double(events) / seconds }
    }

    static let connections = 16

    private let requests: [[UInt8]]
    private let events: Int
    /// Each sends every so many batches.
    static let installs = 64

    /// - Parameters:
    ///   - duplicates: Every how many events one is sent that was sent before.
    init(
        _ corpus: Corpus, batchSize: Int, duplicates: Int = 100, isCompressed: Bool = false, key: String = ServerProcess.key
    ) throws {
        requests = try Self.makeRequests(corpus, batchSize: batchSize, duplicates: duplicates, isCompressed, key)
        events = corpus.events.count
    }

    /// As of clients that number their events and say what became of them, or of senders that do not; each event once.
    init(ofClients: Bool, events count: Int, batchSize: Int) {
        let corpus = Corpus(count: count, installs: Self.installs, batchSize: batchSize)
        var generator = UUIDv7Generator()
        let installs = (0..<Self.installs).map { _ in generator.next(unixMilliseconds: 1_767_225_600_000) }
        events = count
        requests = stride(from: 0, to: count, by: batchSize).map { first in
            let batch = Array(corpus.events[first..<min(first + batchSize, count)])
            var envelope = EventBatch.Envelope(
                batchID: generator.next(unixMilliseconds: 1_767_225_600_000), sentAt: 1_767_225_600_000)
            if ofClients {
                let sent = Int64(first / batchSize / Self.installs * batchSize)
                (envelope.installID, envelope.reportVersion) = (installs[first / batchSize % Self.installs], 1)
                (envelope.created, envelope.acknowledged) = (sent + Int64(batch.count), sent)
            }
            return HTTPConnection.request(body: EventBatch(envelope: envelope, events: batch).encoded())
        }
    }

    /// - Parameter events: How many events all requests hold, each once.
    init(_ requests: [[UInt8]], events: Int) { (self.requests, self.events) = (requests, events) }

    /// Lines of an export, sent as they are: a batch is a request of newline-delimited JSON.
    init(lines: [ArraySlice<UInt8>], batchSize: Int) {
        events = lines.count
        requests = stride(from: 0, to: lines.count, by: batchSize).map { first in
            HTTPConnection.request(
                body: Array(lines[first..<min(first + batchSize, lines.count)].joined(separator: [0x0A])), type: "application/x-ndjson")
        }
    }

    static func run(
        server: some LoadTarget, corpus: Corpus, batchSize: Int, duplicates: Int = 100, isCompressed: Bool = false,
        connections: Int = Self.connections
    ) throws -> Figures {
        try Load(corpus, batchSize: batchSize, duplicates: duplicates, isCompressed: isCompressed).run(server, connections: connections)
    }

    /// - Parameter isResent: Whether all of it is stored already: then each event must be answered as a duplicate.
    func run(_ server: some LoadTarget, isResent: Bool = false, connections: Int = Self.connections) throws -> Figures {
        let shared = Locked(Shared(next: 0))
        let (requests, port) = (requests, server.port)
        let before = (server.cpuSeconds, Self.ownCPUSeconds)
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
                        let counts = try ["received", "stored", "duplicates"].map { try Self.count($0, in: answer) }
                        shared.withLock { $0.account(counts) }
                    }
                    shared.withLock { $0.latencies += latencies }
                } catch {
                    shared.withLock { $0.failure = "\(error)" }
                }
            }
        }
        group.wait()
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        let after = (server.cpuSeconds, Self.ownCPUSeconds)
        let result = shared.withLock { $0 }
        if let failure = result.failure { throw BenchmarkError(failure) }
        // A rate of something else than storing each event once would be no rate at all.
        guard result.stored == (isResent ? 0 : events), result.stored + result.duplicates == result.received else {
            throw BenchmarkError("stored \(result.stored) and \(result.duplicates) duplicates of \(result.received) events")
        }
        let latencies = result.latencies.sorted()
        func each(_ seconds: Double) -> Double { seconds / Double(result.received) * 1_000_000 }
        return Figures(
            events: result.received, seconds: seconds, serverCPUMicroseconds: each(after.0 - before.0),
            loadCPUMicroseconds: each(after.1 - before.1), p50: latencies[latencies.count / 2], p99: latencies[latencies.count * 99 / 100],
            slowest: latencies.last ?? .nan)
    }

    /// One of the numbers in front of a receipt: reading all of it as JSON would be most of the load's own work.
    private static func count(_ name: String, in receipt: ArraySlice<UInt8>) throws -> Int {
        guard let key = receipt.firstRange(of: Array("\"\(name)\":".utf8)) else {
            throw BenchmarkError("no receipt: \(String(decoding: receipt.prefix(200), as: UTF8.self))")
        }
        return receipt[key.upperBound...].prefix { $0 &- 0x30 < 10 }.reduce(0) { $0 * 10 + Int($1 - 0x30) }
    }

    private static var ownCPUSeconds: Double { Double(clock()) / Double(CLOCKS_PER_SEC) }

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

        mutating func account(_ counts: [Int]) {
            received += counts[0]
            stored += counts[1]
            duplicates += counts[2]
        }
    }

    private static func makeRequests(
        _ corpus: Corpus, batchSize: Int, duplicates: Int, _ isCompressed: Bool, _ key: String
    ) throws -> [[UInt8]] {
        var generator = UUIDv7Generator()
        var requests: [[UInt8]] = []
        var batch: [[UInt8]] = []
        func finish() throws {
            guard !batch.isEmpty else { return }
            let id = generator.next(unixMilliseconds: 1_767_225_600_000)
            let body = EventBatch(envelope: .init(batchID: id, sentAt: 1_767_225_600_000), events: batch).encoded()
            let sent = isCompressed ? try Gzip.compress(body) : body
            requests.append(HTTPConnection.request(body: sent, isCompressed: isCompressed, key: key))
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
