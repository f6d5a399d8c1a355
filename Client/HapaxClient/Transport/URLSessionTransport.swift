#if HAPAX_APPLE_STUBS
import FoundationNetworking
import HapaxClient
#endif

#if canImport(Darwin) || HAPAX_APPLE_STUBS
import Dispatch
import Foundation
import HapaxModel

/// Requests by URLSession, on Apple's platforms.
///
/// The session's own timeout begins anew with each byte that comes, so a request has its deadline here. Whatever ends a request early, as
/// that deadline, answers its caller at once: the session ends the task behind that, when it likes.
package final class URLSessionTransport: EventTransport {
    private let exchanges = Exchanges()
    private let session: URLSession

    package init() {
        session = URLSession(configuration: Self.configuration, delegate: exchanges, delegateQueue: nil)
    }

    /// Another one each time: it can be changed.
    static var configuration: URLSessionConfiguration {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpMaximumConnectionsPerHost = 5
        configuration.allowsCellularAccess = true
        configuration.urlCache = nil
        configuration.httpCookieStorage = nil
        return configuration
    }

    // The session keeps its delegate until then.
    deinit { session.finishTasksAndInvalidate() }

    package func send(_ request: TransportRequest) async -> Result<TransportAnswer, TransportFailure> {
        guard let url = URL(string: request.url) else { return .failure(.cannotConnect) }
        let silence = request.onBody == nil ? request.timeout : min(request.timeout, TransportRequest.silence)
        var urlRequest = URLRequest(url: url, timeoutInterval: max(silence / .seconds(1), 1))
        urlRequest.httpMethod = request.onBody == nil ? "POST" : "GET"
        for (name, value) in request.headers { urlRequest.setValue(value, forHTTPHeaderField: name) }
        let task: URLSessionTask =
            request.onBody == nil ? session.uploadTask(with: urlRequest, from: Data(request.body)) : session.dataTask(with: urlRequest)
        return await withCheckedContinuation { continuation in
            guard exchanges.begin(task, continuation, request.onBody) else {
                // The session would wait for it.
                task.cancel()
                return continuation.resume(returning: .failure(.aborted))
            }
            let (exchanges, identifier) = (exchanges, task.taskIdentifier)
            let deadline = DispatchWorkItem { exchanges.end(identifier, .failure(.timedOut)) }
            exchanges.expect(deadline, identifier)
            exchanges.queue.asyncAfter(deadline: .now() + max(request.timeout / .seconds(1), 0), execute: deadline)
            task.resume()
        }
    }

    package func close() { exchanges.close() }
}

/// The requests under way, as the session reports them.
private final class Exchanges: NSObject, URLSessionDataDelegate, Sendable {
    private struct Exchange {
        let task: URLSessionTask
        let continuation: CheckedContinuation<Result<TransportAnswer, TransportFailure>, Never>
        let onBody: (@Sendable ([UInt8]) -> Void)?
        var deadline: DispatchWorkItem?
        var body: [UInt8] = []
    }

    private struct State {
        var isClosed = false
        var exchanges: [Int: Exchange] = [:]
    }

    private let state = Locked(State())
    /// Where deadlines pass.
    let queue = DispatchQueue(label: "hapax.deadline")

    /// - Returns: false once it is closed.
    func begin(
        _ task: URLSessionTask, _ continuation: CheckedContinuation<Result<TransportAnswer, TransportFailure>, Never>,
        _ onBody: (@Sendable ([UInt8]) -> Void)?
    ) -> Bool {
        state.withLock { state in
            if state.isClosed { return false }
            state.exchanges[task.taskIdentifier] = Exchange(task: task, continuation: continuation, onBody: onBody)
            return true
        }
    }

    func expect(_ deadline: DispatchWorkItem, _ identifier: Int) {
        state.withLock { $0.exchanges[identifier]?.deadline = deadline }
    }

    /// Once: what comes later of the same request is nobody's.
    func end(_ identifier: Int, _ result: Result<TransportAnswer, TransportFailure>) {
        state.withLock { $0.exchanges.removeValue(forKey: identifier) }.map { Self.end($0, result) }
    }

    private static func end(_ exchange: Exchange, _ result: Result<TransportAnswer, TransportFailure>) {
        exchange.deadline?.cancel()
        exchange.task.cancel()
        exchange.continuation.resume(returning: result)
    }

    /// The session stays valid: a request that begins at this moment must not find it otherwise, which is an exception
    /// (https://developer.apple.com/documentation/foundation/urlsession/invalidateandcancel()).
    func close() {
        let ended = state.withLock { state in
            state.isClosed = true
            defer { state.exchanges = [:] }
            return state.exchanges.values
        }
        for exchange in ended { Self.end(exchange, .failure(.aborted)) }
    }

    // MARK: - What the session reports

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        if (dataTask.response as? HTTPURLResponse)?.statusCode == 200,
            let onBody = state.withLock({ $0.exchanges[dataTask.taskIdentifier]?.onBody })
        {
            return onBody([UInt8](data))
        }
        let isTooLarge = state.withLock { state in
            guard let count = state.exchanges[dataTask.taskIdentifier]?.body.count else { return false }
            if count + data.count > EventLimits.maximumAnswerBytes { return true }
            state.exchanges[dataTask.taskIdentifier]?.body.append(contentsOf: data)
            return false
        }
        if isTooLarge { end(dataTask.taskIdentifier, .failure(.answerTooLarge)) }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        let body = state.withLock { $0.exchanges[task.taskIdentifier]?.body ?? [] }
        end(task.taskIdentifier, Self.result(task.response, body, error))
    }

    #if canImport(Darwin)
    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse, newRequest request: URLRequest
    ) async -> URLRequest? {
        nil
    }
    #else
    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse, newRequest request: URLRequest,
        completionHandler: @escaping (URLRequest?) -> Void
    ) {
        completionHandler(nil)
    }
    #endif

    private static func result(
        _ response: URLResponse?, _ body: [UInt8], _ error: (any Error)?
    ) -> Result<TransportAnswer, TransportFailure> {
        if let error { return .failure((error as? URLError).map { failure($0) } ?? .other(0)) }
        guard let response = response as? HTTPURLResponse else { return .failure(.cut) }
        var headers: [String: String] = [:]
        for (name, value) in response.allHeaderFields { headers["\(name)".lowercased()] = "\(value)" }
        return .success(TransportAnswer(status: response.statusCode, headers: headers, body: body))
    }

    private static func failure(_ error: URLError) -> TransportFailure {
        switch error.code {
        case .cannotFindHost, .dnsLookupFailed: .unknownHost
        case .cannotConnectToHost, .notConnectedToInternet, .dataNotAllowed, .internationalRoamingOff, .callIsActive: .cannotConnect
        case .timedOut: .timedOut
        case .secureConnectionFailed, .serverCertificateUntrusted, .serverCertificateHasBadDate, .serverCertificateHasUnknownRoot,
            .serverCertificateNotYetValid, .clientCertificateRejected, .clientCertificateRequired,
            .appTransportSecurityRequiresSecureConnection:
            .tls
        case .networkConnectionLost, .badServerResponse, .cannotParseResponse, .unknown: .cut
        case .cancelled: .aborted
        default: .other(error.errorCode)
        }
    }
}
#endif
