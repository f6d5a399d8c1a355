import HapaxModel

extension FaultProxy {
    /// One request as it came from a client.
    package struct Request: Sendable {
        /// From 0, in the order in which requests were complete.
        package let number: Int
        package let message: HTTPMessage

        /// Which time it is, from 0, that the first of its events passes; 0 for a request without events.
        package let attempt: Int

        /// What the body says, decompressed; nil if it cannot be read.
        package let batch: ScannedBody?

        package var batchID: EventID? { batch?.envelope.batchID }
        package var eventIDs: [EventID] { batch?.events.compactMap(\.id) ?? [] }

        init(number: Int, message: HTTPMessage, batch: ScannedBody?, attempt: Int) {
            self.number = number
            self.message = message
            self.batch = batch
            self.attempt = attempt
        }

        static func batch(of message: HTTPMessage) -> ScannedBody? {
            var body = message.body
            if message["Content-Encoding"]?.lowercased() == "gzip" {
                guard let plain = try? Gzip.decompress(body, limit: EventLimits.maximumDecompressedBodyBytes) else { return nil }
                body = plain
            }
            let isLines = message["Content-Type"]?.lowercased().contains("ndjson") == true
            return isLines ? try? ScannedBody(lines: body[...]) : try? ScannedBody(json: body[...])
        }
    }

    /// One whole answer of the server.
    package struct Answer: Sendable {
        package let message: HTTPMessage
        /// What the server said became of the events; nil if the answer is no receipt.
        package let receipt: Receipt?

        init(_ message: HTTPMessage) {
            self.message = message
            receipt = message.status == 200 ? try? Receipt(json: message.body) : nil
        }
    }

    /// What really became of one request.
    package struct Exchange: Sendable {
        package let request: Request
        /// What was planned.
        package let fault: Fault.Kind
        /// Whether it came about: the answer that was to be dropped had arrived whole, the request was long enough to be cut.
        package var didHappen = false
        /// Whole answers of the server, in the order of the copies sent.
        package var answers: [Answer] = []
        /// Whether a whole answer was written to the client.
        package var wasDelivered = false
    }

    /// The sums over all exchanges that have ended.
    package struct Tally: Sendable {
        package private(set) var exchanges: [Exchange] = []

        /// How often a fault came about, not how often it was planned.
        package func happened(_ kind: Fault.Kind) -> Int {
            exchanges.count { $0.fault == kind && $0.didHappen }
        }

        /// Exchanges whose every answer was withheld from the client although the server had given one.
        package var lost: [Exchange] { exchanges.filter { !$0.wasDelivered && !$0.answers.isEmpty } }

        /// How many events the server said it stored in answers that the client never had whole.
        package var storedInLostAnswers: Int {
            lost.reduce(0) { $0 + $1.answers.reduce(0) { $0 + ($1.receipt?.stored ?? 0) } }
        }

        /// How many events had an outcome in any answer, lost or delivered.
        package func total(_ outcome: Receipt.Outcome) -> Int {
            exchanges.reduce(0) { sum, exchange in
                exchange.answers.reduce(sum) { sum, answer in
                    guard let receipt = answer.receipt else { return sum }
                    return sum + (outcome == .stored ? receipt.stored : receipt.results.count { $0.outcome == outcome })
                }
            }
        }

        mutating func add(_ exchange: Exchange) { exchanges.append(exchange) }
    }
}
