import Foundation
import HapaxModel
import TestSupport

/// What the server spends on an event of another vendor's SDK, beside one of ours with the same content.
struct SendersBenchmark {
    var events: Int
    var rounds: Int

    private static let batchSize = 100

    private enum Kind: String, CaseIterable {
        case native = "ours"
        case uuid = "Segment's, ids that are UUIDs"
        case text = "Segment's, ids that are other texts"
        case none = "Segment's, without ids"
    }

    func run() async throws {
        let cluster = try await PostgresCluster()
        var figures: [Kind: [Load.Figures]] = [:]
        for round in 1...rounds {
            for kind in Kind.allCases {
                note("round \(round) of \(rounds): \(kind.rawValue)")
                let server = try ServerProcess(store: try await cluster.makeDatabase())
                defer { server.stop() }
                figures[kind, default: []].append(try load(kind).run(server))
            }
        }
        print(
            "\n### Other vendors' SDKs: batches of \(Self.batchSize), PostgreSQL \(cluster.version), medians of \(rounds) interleaved rounds of \(events)\n"
        )
        print("| Events | events/s | server µs an event | of ours |")
        print("|---|---|---|---|")
        let ours = figures[.native]?.map(\.serverCPUMicroseconds).median ?? .nan
        for kind in Kind.allCases {
            let cpu = figures[kind]?.map(\.serverCPUMicroseconds).median ?? .nan
            print("| \(kind.rawValue) | \(Int(figures[kind]?.map(\.rate).median ?? .nan)) | \(cpu, places: 2) | \(cpu / ours, places: 2) |")
        }
        try await cluster.stop(mode: .fast)
    }

    private func load(_ kind: Kind) throws -> Load {
        let corpus = Corpus(count: events)
        guard kind != .native else { return try Load(corpus, batchSize: Self.batchSize, duplicates: .max) }
        let requests = stride(from: 0, to: events, by: Self.batchSize).map { first in
            let batch = (first..<min(first + Self.batchSize, events)).map { Self.event(corpus, $0, kind) }
            let body = #"{"batch":[\#(batch.joined(separator: ","))],"sentAt":"2026-11-29T12:00:00.000Z"}"#
            return HTTPConnection.request(path: "/v1/batch", body: Array(body.utf8))
        }
        return Load(requests, events: events)
    }

    private static func event(_ corpus: Corpus, _ index: Int, _ kind: Kind) -> String {
        let event = EventScanner.scan(corpus.events[index][...])
        let id =
            switch kind {
            case .text: #""messageId":"order-\#(corpus.ids[index])","#
            case .uuid: #""messageId":"\#(corpus.ids[index])","#
            case .none, .native: ""
            }
        return #"{"type":"track",\#(id)"event":"order_viewed","userId":"\#(String(decoding: event.distinctID, as: UTF8.self))","#
            + #""timestamp":"\#(Timestamp(clampingUnixMilliseconds: event.time))","properties":\#(String(decoding: event.properties, as: UTF8.self))}"#
    }
}
