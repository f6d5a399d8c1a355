import Foundation
import HapaxModel
import TestSupport

@testable import HapaxClient

/// The real client in this process, and what it was told.
final class ClientUnderTest: Sendable {
    let client: OpenClient
    let installID: EventID
    private let directory: TemporaryDirectory
    private let reports = Locked<[Audit.Report]>([])

    /// - Parameters:
    ///   - transport: What uploads go through; libcurl if nil, as for a user on Linux.
    init(
        port: Int, batchSize: Int = 50, automatic: Bool = false, durability: Durability = .process,
        transport: (any EventTransport)? = nil
    ) async throws {
        directory = TemporaryDirectory("client")
        var configuration = EventClient.Configuration(
            server: "http://127.0.0.1:\(port)", writeKey: ServerUnderTest.key, queueDirectory: directory.path("queue"))
        configuration.batchSize = batchSize
        // Many small requests meet more faults.
        configuration.batchSizeGrows = false
        if !automatic { configuration.uploads.interval = nil }
        configuration.queue.durability = durability
        client = try OpenClient.start(configuration, clock: SystemClock()) { transport ?? CurlTransport() }
        installID = client.counters.installID
    }

    /// Tracks durably and remembers what was returned.
    @discardableResult
    func track(_ name: String = "order_paid", properties: Properties = [:]) async throws -> Int64 {
        let (id, sequence) = try await client.trackDurablySequenced(name, properties: properties)
        reports.withLock { $0.append(Audit.Report(id: id, install: installID, sequence: sequence)) }
        return sequence ?? 0
    }

    /// Tracks `count` events at once and returns when all are durable.
    func track(count: Int) async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            for index in 0..<count {
                group.addTask { try await self.track(properties: ["index": index]) }
            }
            try await group.waitForAll()
        }
    }

    /// Flushes until nothing is left.
    ///
    /// - Throws: ``NotDrained`` if that takes more attempts than a fault could excuse.
    func drain(attempts: Int = 400) async throws {
        for _ in 0..<attempts {
            let report = await client.flush()
            if report.remaining == 0 { return }
        }
        throw NotDrained()
    }

    struct NotDrained: Error {}

    var reported: [Audit.Report] { reports.withLock { $0 } }

    /// Everything that is known when all is over: what this client was told, what the store holds, in which order uploads passed.
    func audit(_ store: PipelineStore, _ proxy: FaultProxy? = nil) async throws -> Audit {
        var audit = Audit()
        try await contribute(to: &audit)
        if let proxy { audit.orders = [Audit.Order("first uploads", proxy.tally.firstUploads)] }
        audit.rows = try await store.rows()
        return audit
    }

    /// The client's side of an audit.
    func contribute(to audit: inout Audit) async throws {
        let status = await client.status()
        audit.reports += reported
        audit.deadLetters += try await client.deadLetters.list(limit: 10_000).map { deadLetter in
            Audit.DeadLetter(
                id: deadLetter.eventID ?? installID, install: installID,
                sequence: deadLetter.number, reason: deadLetter.reason)
        }
        audit.books.append(
            Audit.Books(
                install: installID, tracked: Int(status.created), stored: Int(status.stored + status.duplicates),
                dead: Int(status.deadLettered), queued: status.depth))
    }
}

extension FaultProxy.Tally {
    /// First uploads in the order in which they passed, as install and sequence (R9, I7).
    var firstUploads: [(EventID, Int64)] {
        var seen: Set<EventID> = []
        return exchanges.sorted { $0.request.number < $1.request.number }.flatMap { exchange -> [(EventID, Int64)] in
            guard let batch = exchange.request.batch, let install = batch.envelope.installID else { return [] }
            return batch.events.compactMap { event in
                guard let id = event.id, let sequence = event.sequence, seen.insert(id).inserted else { return nil }
                return (install, sequence)
            }
        }
    }

    /// Requests that the server never answered.
    var unanswered: Int { exchanges.count { $0.answers.isEmpty } }
}
