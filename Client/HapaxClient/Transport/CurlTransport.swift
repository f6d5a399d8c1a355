#if canImport(CCurl)
import CCurl
import Foundation
import HapaxModel

/// Requests by libcurl, one after the other on one thread, over a connection that is kept.
///
/// The thread blocks all signals, so that writing to a broken connection cannot end the host with SIGPIPE, and libcurl installs no
/// handlers of its own. TLS is verified; proxies come from the environment as curl takes them. The multi interface carries the single
/// transfer because its wait can be bounded and woken: the easy interface calls back about once a second only.
package final class CurlTransport: EventTransport {
    private let queue = RequestQueue()
    private let connectTimeout: Duration
    private let startThread: StartThread

    /// Runs it on a thread of its own; returns whether there is one.
    typealias StartThread = @Sendable (@escaping @Sendable () -> Void) -> Bool

    /// - Parameter connectTimeout: For name resolution, connecting and the TLS handshake.
    package convenience init(connectTimeout: Duration = .seconds(10)) {
        self.init(connectTimeout: connectTimeout, startThread: Self.startThread)
    }

    init(connectTimeout: Duration = .seconds(10), startThread: @escaping StartThread) {
        _ = Self.global
        self.connectTimeout = connectTimeout
        self.startThread = startThread
    }

    deinit {
        queue.close()
    }

    package func send(_ request: TransportRequest) async -> Result<TransportAnswer, TransportFailure> {
        await withCheckedContinuation { continuation in
            guard queue.add(request, continuation) else { return }
            // Where there is none, requests are refused rather than never answered, and the next one tries again.
            let isStarted = startThread { [queue, connectTimeout] in
                guard let thread = UploadThread(queue: queue, connectTimeout: connectTimeout) else { return queue.threadIsMissing() }
                thread.run()
            }
            if !isStarted { queue.threadIsMissing() }
        }
    }

    package func close() {
        queue.close()
    }

    /// Requests behind the one under way.
    var waiting: Int { queue.count }

    /// With pthreads, because Foundation's `Thread` does not say if there is none (https://man7.org/linux/man-pages/man3/pthread_create.3.html).
    private static let startThread: StartThread = { body in
        final class Body: Sendable {
            let run: @Sendable () -> Void
            init(_ run: @escaping @Sendable () -> Void) { self.run = run }
        }
        let context = Unmanaged.passRetained(Body(body))
        // A thread inherits the mask of the one that starts it: there is no moment at which it could be handed a signal.
        var all = sigset_t()
        var before = sigset_t()
        sigfillset(&all)
        pthread_sigmask(SIG_SETMASK, &all, &before)
        var thread = pthread_t()
        let failure = pthread_create(
            &thread, nil,
            { context in
                Thread.current.name = "hapax.upload"
                if let context { Unmanaged<Body>.fromOpaque(context).takeRetainedValue().run() }
                return nil
            }, context.toOpaque())
        pthread_sigmask(SIG_SETMASK, &before, nil)
        guard failure == 0 else {
            context.release()
            return false
        }
        pthread_detach(thread)
        return true
    }

    /// Once in a process, and never undone: other libraries may use libcurl, too.
    private static let global: Void = {
        curl_global_init(Int(CURL_GLOBAL_DEFAULT))
    }()
}

/// What waits for the upload thread.
// Unchecked: what can change is touched with `condition` held; `multi` is set before the thread's first request and curl_multi_wakeup may
// be called from any thread.
private final class RequestQueue: @unchecked Sendable {
    typealias Continuation = CheckedContinuation<Result<TransportAnswer, TransportFailure>, Never>

    private let condition = NSCondition()
    private var waiting: [(TransportRequest, Continuation)] = []
    private var closed = false
    private var hasThread = false
    private var multi: OpaquePointer?

    /// - Returns: Whether a thread is to be started, by this caller.
    func add(_ request: TransportRequest, _ continuation: Continuation) -> Bool {
        condition.lock()
        let refused = closed
        if !refused { waiting.append((request, continuation)) }
        let needsThread = !refused && !hasThread
        if needsThread { hasThread = true }
        condition.signal()
        condition.unlock()
        if refused { continuation.resume(returning: .failure(.aborted)) }
        return needsThread
    }

    func close() {
        condition.lock()
        closed = true
        if let multi { curl_multi_wakeup(UnsafeMutableRawPointer(multi)) }
        condition.signal()
        condition.unlock()
        refuse(.aborted)
    }

    /// It could not be started, or could not work.
    func threadIsMissing() {
        condition.lock()
        hasThread = false
        condition.unlock()
        refuse(.outOfResources)
    }

    private func refuse(_ failure: TransportFailure) {
        condition.lock()
        let refused = waiting
        waiting = []
        condition.unlock()
        for (_, continuation) in refused { continuation.resume(returning: .failure(failure)) }
    }

    /// Blocks until there is a request; nil when closed.
    func next() -> (TransportRequest, Continuation)? {
        condition.lock()
        defer { condition.unlock() }
        while waiting.isEmpty && !closed { condition.wait() }
        return closed ? nil : waiting.removeFirst()
    }

    var count: Int {
        condition.lock()
        defer { condition.unlock() }
        return waiting.count
    }

    var isClosed: Bool {
        condition.lock()
        defer { condition.unlock() }
        return closed
    }

    /// - Parameter multi: What to wake when the queue is closed; nil when it ends.
    func use(_ multi: OpaquePointer?) {
        condition.lock()
        self.multi = multi
        condition.unlock()
    }
}

/// The handles, on the thread that owns them.
private struct UploadThread {
    private let queue: RequestQueue
    private let easy: UnsafeMutableRawPointer
    private let multi: UnsafeMutableRawPointer
    private let connectTimeout: Duration

    /// How long a request that is to end may still wait for the network.
    private static let pollMilliseconds: Int32 = 50

    init?(queue: RequestQueue, connectTimeout: Duration) {
        guard let easy = curl_easy_init() else { return nil }
        guard let multi = curl_multi_init() else {
            curl_easy_cleanup(easy)
            return nil
        }
        self.queue = queue
        self.easy = easy
        self.multi = multi
        self.connectTimeout = connectTimeout
    }

    func run() {
        queue.use(OpaquePointer(multi))
        while let (request, continuation) = queue.next() {
            continuation.resume(returning: perform(request))
        }
        queue.use(nil)
        curl_easy_cleanup(easy)
        curl_multi_cleanup(multi)
    }

    /// The certificates of the authorities that are believed, instead of the system's. The library itself does not read this variable
    /// (https://curl.se/docs/sslcerts.html).
    private static let authorities = ProcessInfo.processInfo.environment["SSL_CERT_FILE"].flatMap { $0.isEmpty ? nil : $0 }

    private func perform(_ request: TransportRequest) -> Result<TransportAnswer, TransportFailure> {
        let answer = AnswerCollector(onBody: request.onBody)
        // Clears the options; the connection stays in the multi handle's cache.
        curl_easy_reset(easy)
        // "Expect:" without a value: the body is small enough to go with the header.
        var list: UnsafeMutablePointer<curl_slist>? = curl_slist_append(nil, "Expect:")
        for (name, value) in request.headers { list = curl_slist_append(list, "\(name): \(value)") ?? list }
        defer { curl_slist_free_all(list) }
        let context = Unmanaged.passUnretained(answer).toOpaque()
        hapax_curl_set_string(easy, CURLOPT_URL, request.url)
        hapax_curl_set_list(easy, CURLOPT_HTTPHEADER, list)
        hapax_curl_set_string(easy, CURLOPT_USERAGENT, "hapax")
        hapax_curl_set_long(easy, CURLOPT_NOSIGNAL, 1)
        hapax_curl_set_long(easy, CURLOPT_FOLLOWLOCATION, 0)
        hapax_curl_set_long(easy, CURLOPT_TIMEOUT_MS, request.timeout.wholeMilliseconds)
        hapax_curl_set_long(easy, CURLOPT_CONNECTTIMEOUT_MS, min(connectTimeout, request.timeout).wholeMilliseconds)
        if let authorities = Self.authorities { hapax_curl_set_string(easy, CURLOPT_CAINFO, authorities) }
        hapax_curl_quick_exit(easy)
        hapax_curl_close_on_exec(easy)
        hapax_curl_set_data_function(easy, CURLOPT_WRITEFUNCTION) { bytes, size, count, context in
            AnswerCollector.from(context)?.body(bytes, size * count) ?? 0
        }
        hapax_curl_set_pointer(easy, CURLOPT_WRITEDATA, context)
        hapax_curl_set_data_function(easy, CURLOPT_HEADERFUNCTION) { bytes, size, count, context in
            AnswerCollector.from(context)?.header(bytes, size * count) ?? 0
        }
        hapax_curl_set_pointer(easy, CURLOPT_HEADERDATA, context)
        return withExtendedLifetime(answer) {
            guard request.onBody == nil else {
                // Whatever this libcurl can unpack.
                hapax_curl_set_string(easy, CURLOPT_ACCEPT_ENCODING, "")
                hapax_curl_set_long(easy, CURLOPT_LOW_SPEED_LIMIT, 1)
                hapax_curl_set_long(easy, CURLOPT_LOW_SPEED_TIME, Int(TransportRequest.silence / .seconds(1)))
                return result(transfer(), answer)
            }
            var body = request.body
            return body.withUnsafeMutableBytes { bytes in
                // POSTFIELDS is not copied: the bytes must stay until the transfer has left the multi handle, which is below.
                hapax_curl_set_size(easy, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(bytes.count))
                hapax_curl_set_pointer(easy, CURLOPT_POSTFIELDS, bytes.baseAddress)
                let code = transfer()
                return result(code, answer)
            }
        }
    }

    /// nil if it was ended because the queue is closed.
    private func transfer() -> CURLcode? {
        guard curl_multi_add_handle(multi, easy) == CURLM_OK else { return CURLE_FAILED_INIT }
        defer { curl_multi_remove_handle(multi, easy) }
        while !queue.isClosed {
            var running: Int32 = 0
            guard curl_multi_perform(multi, &running) == CURLM_OK else { return CURLE_FAILED_INIT }
            if running == 0 {
                let code = hapax_curl_finished(multi)
                return code == CURL_LAST ? CURLE_FAILED_INIT : code
            }
            guard curl_multi_poll(multi, nil, 0, Self.pollMilliseconds, nil) == CURLM_OK else { return CURLE_FAILED_INIT }
        }
        return nil
    }

    private func result(_ code: CURLcode?, _ answer: AnswerCollector) -> Result<TransportAnswer, TransportFailure> {
        guard let code else { return .failure(.aborted) }
        if answer.isTooLarge { return .failure(.answerTooLarge) }
        switch code {
        case CURLE_OK:
            // libcurl takes a header that the server's end cuts short for a whole one.
            guard answer.isHeaderComplete else { return .failure(.cut) }
            var status = 0
            hapax_curl_response_code(easy, &status)
            return .success(TransportAnswer(status: status, headers: answer.headers, body: answer.bytes))
        case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY: return .failure(.unknownHost)
        case CURLE_COULDNT_CONNECT: return .failure(.cannotConnect)
        case CURLE_OPERATION_TIMEDOUT: return .failure(hapax_curl_was_begun(easy) != 0 ? .timedOut : .cannotConnect)
        case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_SSL_CERTPROBLEM:
            return .failure(.tls)
        case CURLE_GOT_NOTHING, CURLE_PARTIAL_FILE, CURLE_RECV_ERROR, CURLE_SEND_ERROR, CURLE_WEIRD_SERVER_REPLY,
            CURLE_UNSUPPORTED_PROTOCOL, CURLE_HTTP2, CURLE_HTTP2_STREAM:
            return .failure(.cut)
        default: return .failure(.other(Int(code.rawValue)))
        }
    }
}

/// Gathers one answer from libcurl's callbacks, on the upload thread.
private final class AnswerCollector {
    private(set) var headers: [String: String] = [:]
    private(set) var bytes: [UInt8] = []
    private(set) var isTooLarge = false
    private(set) var isHeaderComplete = false
    private var headerBytes = 0
    private var isSuccess = false
    private let onBody: (@Sendable ([UInt8]) -> Void)?

    init(onBody: (@Sendable ([UInt8]) -> Void)?) {
        self.onBody = onBody
    }

    private static let maximumHeaderBytes = 64 * 1024

    static func from(_ context: UnsafeMutableRawPointer?) -> AnswerCollector? {
        context.map { Unmanaged<AnswerCollector>.fromOpaque($0).takeUnretainedValue() }
    }

    /// - Returns: How much was taken; less than there is ends the transfer.
    func body(_ start: UnsafeMutablePointer<CChar>?, _ count: Int) -> Int {
        if let onBody, isSuccess {
            onBody(Array(UnsafeRawBufferPointer(start: start, count: count)))
            return count
        }
        guard bytes.count + count <= EventLimits.maximumAnswerBytes else {
            isTooLarge = true
            return 0
        }
        bytes.append(contentsOf: UnsafeRawBufferPointer(start: start, count: count))
        return count
    }

    func header(_ start: UnsafeMutablePointer<CChar>?, _ count: Int) -> Int {
        headerBytes += count
        guard headerBytes <= Self.maximumHeaderBytes else {
            isTooLarge = true
            return 0
        }
        let line = String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
        if line.hasPrefix("HTTP/") {
            // An interim answer, or a proxy's, came before: its header is not the answer's.
            headers = [:]
            isHeaderComplete = false
            isSuccess = line.split(separator: " ").dropFirst().first?.prefix(3) == "200"
        } else if line == "\r\n" || line == "\n" {
            isHeaderComplete = true
        } else if let colon = line.firstIndex(of: ":") {
            headers[line[..<colon].lowercased()] = line[line.index(after: colon)...].trimmingCharacters(in: .whitespacesAndNewlines)
        }
        return count
    }
}

extension Duration {
    /// At least 1: libcurl takes 0 for "never".
    fileprivate var wholeMilliseconds: Int {
        max(1, Int(min(max(self, .zero), .seconds(86_400)) / .milliseconds(1)))
    }
}
#endif
