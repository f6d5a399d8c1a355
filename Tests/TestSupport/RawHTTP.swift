import HapaxModel

/// An HTTP/1.1 connection that sends exactly the bytes it is given, right or wrong, whole or in parts.
package final class RawHTTP: Sendable {
    private let socket: LoopbackSocket
    private let reader: Locked<HTTPReader>

    /// Seconds that a read or write may block unless a caller says: it ends a hang, and is no measure of how fast a machine is.
    package static let patience = 300.0

    /// - Parameter timeout: Seconds that one read or write may block.
    package init(port: Int, timeout: Double = RawHTTP.patience) async throws {
        let socket = try await blocking { try LoopbackSocket.connected(port: port, timeout: timeout) }
        self.socket = socket
        reader = Locked(HTTPReader(socket))
    }

    deinit { socket.shutDown() }

    package func send(_ bytes: [UInt8]) async throws {
        try await blocking { [socket] in try socket.write(bytes) }
    }

    package func send(_ text: String) async throws {
        try await send(Array(text.utf8))
    }

    /// Reads one whole answer.
    ///
    /// - Throws: ``LoopbackSocket/Failure/timedOut``, ``HTTPReader/Failure/cut(received:)`` and others.
    package func answer(to method: String = "POST") async throws -> HTTPMessage {
        // Held while reading: one answer at a time is all that the connection can give.
        try await blocking { [reader] in try reader.withLock { try $0.answer(to: method) } }
    }

    /// Reads one interim answer and returns its status, such as 100.
    package func interimAnswer() async throws -> Int {
        try await blocking { [reader] in try reader.withLock { try $0.interimAnswer().status } }
    }

    /// Ends both directions.
    package func close() {
        socket.shutDown()
    }

    /// Ends the connection with a reset instead of an orderly end, once the last reference goes.
    package func resetOnClose() {
        socket.resetOnClose()
    }

    // MARK: - Whole requests

    /// The bytes of a request with `Host` and, with a body, `Content-Length`, unless `headers` has them.
    package static func request(_ method: String, _ path: String, headers: [String: String] = [:], body: [UInt8]? = nil) -> [UInt8] {
        var headers = headers
        let names = Set(headers.keys.map { $0.lowercased() })
        if !names.contains("host") { headers["Host"] = "127.0.0.1" }
        if let body, !names.contains("content-length"), !names.contains("transfer-encoding") {
            headers["Content-Length"] = String(body.count)
        }
        let lines = headers.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)\r\n" }.joined()
        return Array("\(method) \(path) HTTP/1.1\r\n\(lines)\r\n".utf8) + (body ?? [])
    }

    /// One request on a connection of its own.
    package static func post(
        port: Int, path: String = "/v1/events", headers: [String: String] = [:], body: [UInt8], timeout: Double = RawHTTP.patience
    ) async throws -> HTTPMessage {
        let connection = try await RawHTTP(port: port, timeout: timeout)
        try await connection.send(request("POST", path, headers: headers, body: body))
        return try await connection.answer()
    }

    /// One request on a connection of its own.
    package static func get(
        port: Int, path: String, headers: [String: String] = [:], timeout: Double = RawHTTP.patience
    ) async throws -> HTTPMessage {
        let connection = try await RawHTTP(port: port, timeout: timeout)
        try await connection.send(request("GET", path, headers: headers))
        return try await connection.answer(to: "GET")
    }
}
