import Foundation
import HapaxClient
import HapaxModel
import TestSupport

/// How long events wait for a new file when the queue's turns out to be damaged: what can be read of the old one follows later.
struct Damage {
    var events: Int

    /// - Returns: Milliseconds until a client has opened a damaged queue, and those of the slowest durable event while a running one meets
    ///   its damage.
    func run() async throws -> (opened: Double, running: Double) {
        let directory = TemporaryDirectory("bench")
        var configuration = ClientBenchmark.configuration(queue: directory.path("queue"))
        configuration.queue.mailboxCapacity = events + 1
        configuration.queue.mailboxBytes = .max
        let first = try EventClient.start(configuration)
        let properties = Corpus.properties(1)
        for _ in 1..<events { first.track("order_viewed", properties: properties) }
        _ = try await first.trackDurably("order_viewed", properties: properties)
        await first.shutdown(within: .zero)
        let file = directory.path("queue") + "/1.sqlite"

        let client = try EventClient.start(configuration)
        // Pages of rows near the queue's head; the next read meets them.
        try overwrite(file, from: 12 * 4_096, count: 512 * 4_096)
        let flush = Task { await client.flush() }
        var slowest = 0.0
        while await client.status().damage == nil {
            let start = ContinuousClock.now
            _ = try await client.trackDurably("waiting")
            slowest = max(slowest, (ContinuousClock.now - start) / .milliseconds(1))
        }
        _ = await flush.value
        await client.shutdown(within: .zero)

        // The header, which every opening looks at.
        try overwrite(file, from: 16, count: 32)
        let start = ContinuousClock.now
        let last = try EventClient.start(configuration)
        let opened = (ContinuousClock.now - start) / .milliseconds(1)
        await last.shutdown(within: .zero)
        return (opened, slowest)
    }

    private func overwrite(_ file: String, from offset: UInt64, count: Int) throws {
        let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: file))
        defer { try? handle.close() }
        try handle.seek(toOffset: offset)
        try handle.write(contentsOf: Data(repeating: 0xEE, count: count))
    }
}
