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
        try reading()
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

    /// What reading a body takes, without a server: all that differs between the kinds.
    private func reading() throws {
        let corpus = Corpus(count: 10_000)
        print("\n### Reading alone: batches of \(Self.batchSize), medians of \(max(rounds, 5)) interleaved rounds\n")
        print("| Events | ns an event | of ours |")
        print("|---|---|---|")
        var times: [Kind: [Double]] = [:]
        let bodies = Kind.allCases.map { kind in
            stride(from: 0, to: 10_000, by: Self.batchSize).map { Self.body(corpus, $0..<$0 + Self.batchSize, kind) }
        }
        for _ in 0..<max(rounds, 5) {
            for (kind, bodies) in zip(Kind.allCases, bodies) {
                var (taken, clock) = (0, ContinuousClock())
                let time = try clock.measure {
                    for body in bodies {
                        func all(_ source: some EventSource) throws {
                            var source = source
                            while try source.next({ fields, _, _ in taken += fields.problem == nil ? 1 : 0 }) {}
                        }
                        if kind == .native {
                            try all(BodyScan(body[...], isLines: false))
                        } else {
                            try all(SenderBody(body, SenderFormat.all[0], type: "track", .public, arrival: 1))
                        }
                    }
                }
                guard taken == 10_000 else { throw CocoaError(.fileReadCorruptFile) }
                times[kind, default: []].append(time / .nanoseconds(1) / 10_000)
            }
        }
        let ours = times[.native]?.median ?? .nan
        for kind in Kind.allCases {
            let time = times[kind]?.median ?? .nan
            print("| \(kind.rawValue) | \(time, places: 0) | \(time / ours, places: 2) |")
        }
    }

    private static func body(_ corpus: Corpus, _ range: Range<Int>, _ kind: Kind) -> [UInt8] {
        if kind == .native {
            return Array(#"{"events":["#.utf8) + corpus.events[range].joined(separator: Array(",".utf8)) + Array("]}".utf8)
        }
        let batch = range.map { event(corpus, $0, kind) }
        return Array(#"{"batch":[\#(batch.joined(separator: ","))],"sentAt":"2026-11-29T12:00:00.000Z"}"#.utf8)
    }

    private func load(_ kind: Kind) throws -> Load {
        let corpus = Corpus(count: events)
        guard kind != .native else { return try Load(corpus, batchSize: Self.batchSize, duplicates: .max) }
        let requests = stride(from: 0, to: events, by: Self.batchSize).map { first in
            HTTPConnection.request(path: "/v1/batch", body: Self.body(corpus, first..<min(first + Self.batchSize, events), kind))
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
