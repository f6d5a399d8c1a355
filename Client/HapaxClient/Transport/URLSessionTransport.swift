#if canImport(Darwin)
import Foundation
import HapaxModel

/// Requests by URLSession, on Apple's platforms.
package final class URLSessionTransport: NSObject, EventTransport, URLSessionTaskDelegate {
    // URLSession is thread-safe by its documentation; the delegate below holds no state.
    private let session: URLSession
    private let isClosed = Locked(false)

    package override init() {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpMaximumConnectionsPerHost = 5
        configuration.allowsCellularAccess = true
        configuration.urlCache = nil
        configuration.httpCookieStorage = nil
        session = URLSession(configuration: configuration)
        super.init()
    }

    deinit { session.finishTasksAndInvalidate() }

    package func send(_ request: TransportRequest) async -> Result<TransportAnswer, TransportFailure> {
        guard !isClosed.withLock({ $0 }) else { return .failure(.aborted) }
        guard let url = URL(string: request.url) else { return .failure(.cannotConnect) }
        var urlRequest = URLRequest(url: url, timeoutInterval: request.timeout / .seconds(1))
        urlRequest.httpMethod = "POST"
        for (name, value) in request.headers { urlRequest.setValue(value, forHTTPHeaderField: name) }
        do {
            let (data, response) = try await session.upload(for: urlRequest, from: Data(request.body), delegate: self)
            guard let response = response as? HTTPURLResponse else { return .failure(.cut) }
            guard data.count <= EventLimits.maximumAnswerBytes else { return .failure(.answerTooLarge) }
            var headers: [String: String] = [:]
            for (name, value) in response.allHeaderFields { headers["\(name)".lowercased()] = "\(value)" }
            return .success(TransportAnswer(status: response.statusCode, headers: headers, body: [UInt8](data)))
        } catch let error as URLError {
            return .failure(Self.failure(error))
        } catch {
            return .failure(.other(0))
        }
    }

    /// The session stays valid: a request that begins at this moment must not find it otherwise, which is an exception
    /// (https://developer.apple.com/documentation/foundation/urlsession/invalidateandcancel()). Such a one ends at its deadline.
    package func close() {
        isClosed.withLock { $0 = true }
        session.getAllTasks { tasks in for task in tasks { task.cancel() } }
    }

    package func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse, newRequest request: URLRequest
    ) async -> URLRequest? {
        nil
    }

    private static func failure(_ error: URLError) -> TransportFailure {
        switch error.code {
        case .cannotFindHost, .dnsLookupFailed: .unknownHost
        case .cannotConnectToHost, .notConnectedToInternet: .cannotConnect
        case .timedOut: .timedOut
        case .secureConnectionFailed, .serverCertificateUntrusted, .serverCertificateHasBadDate, .serverCertificateHasUnknownRoot: .tls
        case .networkConnectionLost, .badServerResponse, .cannotParseResponse: .cut
        case .cancelled: .aborted
        default: .other(error.errorCode)
        }
    }
}
#endif
