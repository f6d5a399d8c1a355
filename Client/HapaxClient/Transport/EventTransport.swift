/// Sends one request and brings back the whole answer.
///
/// Contract: an answer is returned only when it has been received completely; everything else is a ``TransportFailure``, after which the
/// server may or may not have acted. Redirects are not followed. The answer's body is at most `EventLimits.maximumAnswerBytes`, unless somebody
/// takes it as it comes.
package protocol EventTransport: Sendable {
    func send(_ request: TransportRequest) async -> Result<TransportAnswer, TransportFailure>

    /// Ends what is under way and refuses what comes later, both with ``TransportFailure/aborted``, within 100 ms.
    func close()
}

/// A POST, or a GET of what may be long.
package struct TransportRequest: Sendable {
    package var url: String
    package var headers: [(name: String, value: String)]
    package var body: [UInt8]
    /// For everything from connecting to the answer's last byte.
    package var timeout: Duration
    /// Makes it a GET: takes the body of an answer with status 200 as it comes, on the transport's own thread; that of any other is kept. The
    /// answer is ``TransportFailure/timedOut`` if nothing comes for ``silence``.
    package var onBody: (@Sendable ([UInt8]) -> Void)?

    package init(
        url: String, headers: [(name: String, value: String)], body: [UInt8] = [], timeout: Duration,
        onBody: (@Sendable ([UInt8]) -> Void)? = nil
    ) {
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout = timeout
        self.onBody = onBody
    }

    /// Three of the server's heartbeats.
    package static let silence = Duration.seconds(45)
}

/// A complete answer.
package struct TransportAnswer: Sendable {
    package var status: Int
    /// By lower-case name; the last of repeated fields.
    package var headers: [String: String]
    package var body: [UInt8]

    package init(status: Int, headers: [String: String] = [:], body: [UInt8] = []) {
        self.status = status
        self.headers = headers
        self.body = body
    }
}

/// Why there is no complete answer.
public enum TransportFailure: Error, Hashable, Sendable {
    /// The host's name cannot be resolved. The server has seen nothing.
    case unknownHost
    /// Nobody listens, or the network is away. The server has seen nothing.
    case cannotConnect
    /// The deadline passed; the server may have acted.
    case timedOut
    /// No secure connection, as with an expired certificate. The server has seen nothing.
    case tls
    /// The connection broke, or what came back was not HTTP.
    case cut
    /// More than `EventLimits.maximumAnswerBytes`; the server may have acted.
    case answerTooLarge
    /// The client ended it, as in a shutdown; the server may have acted.
    case aborted
    /// The process has no thread or memory for it. The server has seen nothing.
    case outOfResources
    /// Anything else; the number is the transport's own.
    case other(Int)
}

extension TransportFailure: CustomStringConvertible {
    public var description: String {
        switch self {
        case .unknownHost: "the host's name cannot be resolved"
        case .cannotConnect: "no connection could be made"
        case .timedOut: "the deadline passed"
        case .tls: "TLS failed: the certificate is not trusted, has ended or is of another name, or no TLS is spoken there"
        case .cut: "the connection broke"
        case .answerTooLarge: "the answer is too large"
        case .aborted: "it was aborted"
        case .outOfResources: "no thread or memory is left for it"
        case .other(let number): "transport error \(number)"
        }
    }
}
