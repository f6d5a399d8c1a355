import Foundation

#if canImport(Glibc)
import Glibc
#endif
import HapaxModel

/// A TCP server on loopback that answers each connection's requests as a test says, byte for byte.
///
/// Each connection has a thread of its own, which ends when the connection does.
final class LoopbackServer: Sendable {
    /// What to do with one complete request on a connection.
    enum Reaction: Sendable {
        case answer(String)
        /// Sends this and closes.
        case answerAndClose(String)
        /// Keeps the connection open and says nothing.
        case silence
        /// Sends this, and then a byte each 20 ms for as long as the other side takes them.
        case drip(String)
    }

    struct Request: Sendable {
        var connection: Int
        var head: String
        var body: [UInt8]
    }

    let port: UInt16
    private let listener: Int32
    private let state = Locked((requests: [Request](), open: [Int32](), connections: 0))
    private let react: @Sendable (Request) -> Reaction

    struct Failed: Error {}

    init(_ react: @escaping @Sendable (Request) -> Reaction) throws {
        self.react = react
        listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let listener = listener
        let isListening = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                bind(listener, address, length) == 0 && listen(listener, 16) == 0 && getsockname(listener, address, &length) == 0
            }
        }
        guard isListening else { throw Failed() }
        port = UInt16(bigEndian: address.sin_port)
        let thread = Thread { [self] in accept() }
        thread.start()
    }

    var url: String { "http://127.0.0.1:\(port)/v1/events" }
    var requests: [Request] { state.withLock { $0.requests } }
    var connections: Int { state.withLock { $0.connections } }

    func stop() {
        // Wakes the thread that accepts; the descriptors go with their threads.
        shutdown(listener, Int32(SHUT_RDWR))
        for descriptor in state.withLock({ $0.open }) { shutdown(descriptor, Int32(SHUT_RDWR)) }
    }

    private func accept() {
        while true {
            let descriptor = Glibc.accept(listener, nil, nil)
            if descriptor < 0 { break }
            let number = state.withLock { state in
                state.open.append(descriptor)
                state.connections += 1
                return state.connections
            }
            Thread { [self] in serve(descriptor, number) }.start()
        }
        close(listener)
    }

    private func serve(_ descriptor: Int32, _ number: Int) {
        var buffer: [UInt8] = []
        while let request = read(descriptor, &buffer, number) {
            state.withLock { $0.requests.append(request) }
            switch react(request) {
            case .answer(let text): send(descriptor, text)
            case .answerAndClose(let text):
                send(descriptor, text)
                return finish(descriptor)
            case .silence: continue
            case .drip(let text):
                send(descriptor, text)
                drip(descriptor)
                return finish(descriptor)
            }
        }
        finish(descriptor)
    }

    private func finish(_ descriptor: Int32) {
        state.withLock { $0.open.removeAll { $0 == descriptor } }
        close(descriptor)
    }

    private func send(_ descriptor: Int32, _ text: String) {
        let bytes = Array(text.utf8)
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if count <= 0 { return }
            sent += count
        }
    }

    /// The pause is what this is about: nothing is waited for but the connection's end.
    private func drip(_ descriptor: Int32) {
        var byte: UInt8 = 0x20
        var end = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        while poll(&end, 1, 20) == 0, Glibc.send(descriptor, &byte, 1, Int32(MSG_NOSIGNAL)) == 1 {}
    }

    /// nil when the connection has ended.
    private func read(_ descriptor: Int32, _ buffer: inout [UInt8], _ number: Int) -> Request? {
        let blank = Array("\r\n\r\n".utf8)
        while true {
            if let end = buffer.firstRange(of: blank) {
                let head = String(decoding: buffer[..<end.lowerBound], as: UTF8.self)
                let length =
                    head.split(separator: "\r\n").first { $0.lowercased().hasPrefix("content-length:") }
                    .flatMap { Int($0.split(separator: ":")[1].trimmingCharacters(in: .whitespaces)) } ?? 0
                if buffer.count >= end.upperBound + length {
                    let body = Array(buffer[end.upperBound..<end.upperBound + length])
                    buffer.removeFirst(end.upperBound + length)
                    return Request(connection: number, head: head, body: body)
                }
            }
            var chunk = [UInt8](repeating: 0, count: 65_536)
            let count = recv(descriptor, &chunk, chunk.count, 0)
            if count <= 0 { return nil }
            buffer.append(contentsOf: chunk[..<count])
        }
    }
}
