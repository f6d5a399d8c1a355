import Foundation

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// One kept-alive loopback connection that sends prepared requests and waits for each answer: as little work as a load can be.
final class HTTPConnection {
    private let descriptor: Int32
    private var buffer = [UInt8](repeating: 0, count: 256 * 1024)

    private static let withoutWaiting = Int32(MSG_DONTWAIT)
    private static let peeking = Int32(MSG_PEEK)

    init(port: Int) throws {
        #if canImport(Darwin)
        descriptor = socket(AF_INET, SOCK_STREAM, 0)
        #else
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        #endif
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let status = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        var noDelay: Int32 = 1
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &noDelay, socklen_t(MemoryLayout<Int32>.size))
        // A stuck server ends the run instead of hanging it.
        var timeout = timeval(tv_sec: 60, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
        guard status == 0 else { throw BenchmarkError("cannot connect to port \(port)") }
    }

    deinit { close(descriptor) }

    static func request(
        _ method: String = "POST", path: String = "/v1/events", body: [UInt8], type: String = "application/json",
        isCompressed: Bool = false,
        key: String = ServerProcess.key
    ) -> [UInt8] {
        let encoding = isCompressed ? "Content-Encoding: gzip\r\n" : ""
        let head =
            "\(method) \(path) HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \(key)\r\n"
            + "Content-Type: \(type)\r\n\(encoding)Content-Length: \(body.count)\r\n\r\n"
        return Array(head.utf8) + body
    }

    static func get(_ path: String, port: Int, key: String = ServerProcess.readKey) -> [UInt8] {
        Array("GET \(path) HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nAuthorization: Bearer \(key)\r\n\r\n".utf8)
    }

    /// Reads an answer in chunks to its end, which is the connection's last.
    ///
    /// - Returns: How many bytes came.
    func drain(
        _ request: [UInt8], take: (ArraySlice<UInt8>) -> Void = { _ in }, until isEnough: () -> Bool = { false }
    ) throws -> Int {
        guard request.withUnsafeBytes({ write(descriptor, $0.baseAddress, request.count) }) == request.count else {
            throw BenchmarkError("the connection ended while sending")
        }
        var bytes = 0
        while !isEnough() {
            let count = buffer.withUnsafeMutableBytes { read(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 else { throw BenchmarkError("the connection ended before the answer") }
            bytes += count
            take(buffer[..<count])
            if buffer[..<count].suffix(5).elementsEqual("0\r\n\r\n".utf8) { break }
        }
        return bytes
    }

    /// - Parameter answer: A whole one, with its head, in chunks (RFC 9112, section 7.1).
    /// - Returns: Its body.
    static func unchunked(_ answer: [UInt8]) -> [UInt8] {
        var body: [UInt8] = []
        var rest = answer[...]
        guard let head = rest.firstRange(of: Array("\r\n\r\n".utf8)) else { return [] }
        rest = rest[head.upperBound...]
        while let end = rest.firstIndex(of: 0x0D), let size = Int(String(decoding: rest[..<end], as: UTF8.self), radix: 16), size > 0 {
            let start = end + 2
            body += rest[start..<start + size]
            rest = rest[(start + size + 2)...]
        }
        return body
    }

    /// - Returns: The answer's body, whatever its status.
    /// - Throws: If the connection ends.
    func send(_ request: [UInt8]) throws -> ArraySlice<UInt8> {
        try exchange(request).body
    }

    /// Sends what the system takes at once.
    ///
    /// - Returns: false if the connection has ended.
    func sendWithoutWaiting(_ bytes: [UInt8]) -> Bool {
        guard !bytes.isEmpty else {
            var byte: UInt8 = 0
            let count = recv(descriptor, &byte, 1, Self.withoutWaiting | Self.peeking)
            return count > 0 || (count < 0 && errno == EAGAIN)
        }
        let count = bytes.withUnsafeBytes { systemSend(descriptor, $0.baseAddress, $0.count, Self.withoutWaiting) }
        return count >= 0 || errno == EAGAIN
    }

    /// - Returns: The answer, and whether the connection goes on.
    func exchange(_ request: [UInt8]) throws -> (status: Int, body: ArraySlice<UInt8>, isKept: Bool) {
        var sent = 0
        while sent < request.count {
            let count = request.withUnsafeBytes { write(descriptor, $0.baseAddress.map { $0 + sent }, request.count - sent) }
            guard count > 0 else { throw BenchmarkError("the connection ended while sending") }
            sent += count
        }
        var filled = 0
        while true {
            let count = buffer.withUnsafeMutableBytes { read(descriptor, $0.baseAddress.map { $0 + filled }, $0.count - filled) }
            guard count > 0 else { throw BenchmarkError("the connection ended before the answer") }
            filled += count
            if let answer = answer(filled) { return answer }
            if filled == buffer.count { buffer.append(contentsOf: repeatElement(0, count: filled)) }
        }
    }

    /// What a load spends on an answer is kept small: the head is looked through once, for one field.
    private func answer(_ filled: Int) -> (status: Int, body: ArraySlice<UInt8>, isKept: Bool)? {
        guard let head = headLength(filled) else { return nil }
        guard let text = field("content-length:", head), let length = Int(String(decoding: text, as: UTF8.self)), filled >= head + length,
            let status = Int(String(decoding: buffer[..<head].dropFirst("HTTP/1.1 ".utf8.count).prefix(3), as: UTF8.self))
        else { return nil }
        let isKept = field("connection:", head).map { String(decoding: $0, as: UTF8.self) } != "close"
        return (status, buffer[head..<head + length], isKept)
    }

    /// - Returns: nil until the head's end has come.
    private func headLength(_ filled: Int) -> Int? {
        var index = 3
        while index < filled {
            if buffer[index] == 0x0A, buffer[index - 1] == 0x0D, buffer[index - 2] == 0x0A, buffer[index - 3] == 0x0D { return index + 1 }
            index += 1
        }
        return nil
    }

    /// - Parameter name: In lower case, with its colon.
    private func field(_ name: StaticString, _ head: Int) -> ArraySlice<UInt8>? {
        let name = UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
        var start = 0
        while let end = buffer[start..<head].firstIndex(of: 0x0D) {
            if end - start > name.count, zip(buffer[start..<end], name).allSatisfy({ $0 | 0x20 == $1 }) {
                return buffer[start + name.count..<end].drop { $0 == 0x20 }
            }
            start = end + 2
        }
        return nil
    }
}

private func systemSend(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int, _ flags: Int32) -> Int {
    send(descriptor, bytes, count, flags)
}

struct BenchmarkError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
}
