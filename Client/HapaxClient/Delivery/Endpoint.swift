import Foundation
import HapaxModel

/// The server as the delivery knows it, and how much to send it at once.
package struct Endpoint: Sendable {
    package var url: String
    package var key: String
    /// Events of the first request.
    package var batchSize: Int
    /// Whether later ones may hold more.
    package var batchSizeGrows: Bool
    /// Bytes of one request's events, before compression.
    package var maximumBatchBytes = EventLimits.maximumClientBatchBytes - maximumEnvelopeBytes
    /// For each request as a whole.
    package var timeout: Duration

    /// Room for what stands around the events.
    private static let maximumEnvelopeBytes = 16 * 1_024

    /// Smaller bodies fit one packet as they are.
    private static let minimumBytesToCompress = 1_024

    package init(url: String, key: String, batchSize: Int, batchSizeGrows: Bool, timeout: Duration) {
        self.url = url
        self.key = key
        self.batchSize = batchSize
        self.batchSizeGrows = batchSizeGrows
        self.timeout = timeout
    }

    /// Names server and key in the queue's directory, where a file's events go, however the URL is written. It does not give the key away.
    package var destination: EventID { EventID.derived(name: spellings.plain, key: key) }

    /// The URL however it is written.
    var server: String { spellings.plain }

    /// Also the names under which a file was begun by a version that distinguished spellings of the URL.
    package var destinations: Set<EventID> {
        Set([url, spellings.plain, spellings.withPort].map { EventID.derived(name: $0, key: key) })
    }

    /// In small letters as far as the host, without the port that is meant anyway, and with it.
    private var spellings: (plain: String, withPort: String) {
        guard let start = url.range(of: "://") else { return (url, url) }
        let scheme = url[..<start.lowerBound].lowercased()
        let (authority, path) = (url[start.upperBound...].prefix { $0 != "/" }, url[start.upperBound...].drop { $0 != "/" })
        let port = scheme == "https" ? ":443" : ":80"
        var host = authority.lowercased()
        for usual in [port, ":"] where host.hasSuffix(usual) { host.removeLast(usual.count) }
        let hasPort = host.last != "]" && host.split(separator: "]").last?.contains(":") == true
        return ("\(scheme)://\(host)\(path)", "\(scheme)://\(host)\(hasPort ? "" : port)\(path)")
    }

    func request(_ body: [UInt8], compresses: Bool = true) -> TransportRequest {
        var request = TransportRequest(
            url: url, headers: [("Authorization", "Bearer " + key), ("Content-Type", "application/json")], body: body, timeout: timeout)
        // What cannot be compressed goes as it is.
        if compresses, body.count >= Self.minimumBytesToCompress, let compressed = try? Gzip.compress(body) {
            request.body = compressed
            request.headers.append(("Content-Encoding", "gzip"))
        }
        return request
    }
}

/// What a delivery has done since it began.
package struct DeliveryCounts: Hashable, Sendable {
    package var attempts = 0
    package var stored = 0
    package var duplicates = 0
    package var deadLettered = 0

    package init() {}

    private init(attempts: Int, stored: Int, duplicates: Int, deadLettered: Int) {
        (self.attempts, self.stored, self.duplicates, self.deadLettered) = (attempts, stored, duplicates, deadLettered)
    }

    mutating func count(_ fate: Settlement.Fate) {
        switch fate {
        case .stored: stored += 1
        case .duplicate: duplicates += 1
        case .deadLetter: deadLettered += 1
        }
    }

    /// Of two readings of counts that only grow.
    func orLater(_ other: DeliveryCounts) -> DeliveryCounts {
        DeliveryCounts(
            attempts: max(attempts, other.attempts), stored: max(stored, other.stored), duplicates: max(duplicates, other.duplicates),
            deadLettered: max(deadLettered, other.deadLettered))
    }

    static func - (left: DeliveryCounts, right: DeliveryCounts) -> DeliveryCounts {
        DeliveryCounts(
            attempts: left.attempts - right.attempts, stored: left.stored - right.stored, duplicates: left.duplicates - right.duplicates,
            deadLettered: left.deadLettered - right.deadLettered)
    }

    static func + (left: DeliveryCounts, right: DeliveryCounts) -> DeliveryCounts {
        DeliveryCounts(
            attempts: left.attempts + right.attempts, stored: left.stored + right.stored, duplicates: left.duplicates + right.duplicates,
            deadLettered: left.deadLettered + right.deadLettered)
    }
}

/// How a delivery stands.
package struct DeliveryState: Hashable, Sendable {
    package var counts: DeliveryCounts
    /// Why the latest attempt failed; nil after one that did not.
    package var failure: DeliveryFailure?
    /// What the server said of it.
    package var detail: String?
    /// When the next attempt is made without being asked, in Unix milliseconds.
    package var nextAttempt: Int64?
}
