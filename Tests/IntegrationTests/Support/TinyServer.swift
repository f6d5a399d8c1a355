import Foundation
import HapaxModel
import TestSupport

/// As little of an ingest server as the proxy's own tests need: it keeps ids in memory and answers with receipts.
final class TinyServer: Sendable {
    struct Seen: Sendable {
        var ids: Set<EventID> = []
        /// Whole requests.
        var requests = 0
        /// Connections that ended within a request.
        var cutRequests = 0
    }
    let port: Int
    private let listener: LoopbackSocket
    private let state: Locked<Seen>
    private let ended: Gate

    var seen: Seen { state.withLock { $0 } }

    /// Opens when a connection has ended within a request.
    var cutSeen: Gate { ended }

    init() throws {
        let listener = try LoopbackSocket.listening()
        let state = Locked(Seen())
        let ended = Gate()
        self.listener = listener
        self.state = state
        self.ended = ended
        port = listener.port
        Thread.detachNewThread {
            while let connection = try? listener.accepted() {
                Thread.detachNewThread { Self.serve(connection, state, ended) }
            }
        }
    }

    deinit { listener.shutDown() }

    private static func serve(_ connection: LoopbackSocket, _ state: Locked<Seen>, _ ended: Gate) {
        var reader = HTTPReader(connection)
        do {
            while let message = try reader.request() {
                let body = try ScannedBody(json: message.body[...])
                let answer = state.withLock { state in
                    state.requests += 1
                    var results: [Receipt.Result] = []
                    for (index, event) in body.events.enumerated() {
                        guard let id = event.id, !state.ids.insert(id).inserted else { continue }
                        results.append(Receipt.Result(index: index, eventID: id, outcome: .duplicate))
                    }
                    return Receipt(
                        batchID: body.envelope.batchID, received: body.events.count, stored: body.events.count - results.count,
                        results: results
                    ).encoded()
                }
                try connection.write(Array("HTTP/1.1 200 OK\r\nContent-Length: \(answer.count)\r\n\r\n".utf8) + answer)
            }
        } catch {
            state.withLock { $0.cutRequests += 1 }
            ended.open()
        }
    }
}
