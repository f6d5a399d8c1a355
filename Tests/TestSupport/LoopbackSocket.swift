import Foundation

/// A blocking TCP socket of 127.0.0.1. Its calls block the thread; tasks reach them through ``blocking(_:)``.
///
/// The descriptor is closed with the last reference; another thread wakes a blocked one by ``shutDown()``.
package final class LoopbackSocket: Sendable {
    private let descriptor: Descriptor

    package enum Failure: Error, Hashable {
        /// Nothing arrived in time.
        case timedOut
        case system(Descriptor.Failure)

        init(_ call: String, code: Int32 = errno) {
            self = code == EAGAIN || code == EWOULDBLOCK ? .timedOut : .system(Descriptor.Failure(call, code))
        }
    }

    private init(_ descriptor: Descriptor) {
        self.descriptor = descriptor
        var on: Int32 = 1
        setsockopt(descriptor.number, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
        #if canImport(Darwin)
        setsockopt(descriptor.number, SOL_SOCKET, SO_NOSIGPIPE, &on, socklen_t(MemoryLayout<Int32>.size))
        #endif
    }

    private static func make() throws -> Descriptor {
        #if canImport(Darwin)
        let kind = SOCK_STREAM
        #else
        let kind = Int32(SOCK_STREAM.rawValue)
        #endif
        let descriptor = Descriptor { socket(AF_INET, kind, 0) }
        guard descriptor.number >= 0 else { throw Failure("socket") }
        return descriptor
    }

    private static func withAddress<Value>(port: Int, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Value) -> Value {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(UInt16(truncatingIfNeeded: port).bigEndian)
        address.sin_addr.s_addr = in_addr_t(UInt32(0x7F00_0001).bigEndian)
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_in>.size)) }
        }
    }

    // MARK: - Opening

    /// - Parameter timeout: Seconds for each later read and write; nil waits for ever.
    package static func connected(port: Int, timeout: Double? = nil) throws -> LoopbackSocket {
        let socket = LoopbackSocket(try make())
        if let timeout { socket.setTimeout(timeout) }
        let status = withAddress(port: port) { connect(socket.descriptor.number, $0, $1) }
        guard status == 0 else { throw Failure("connect") }
        return socket
    }

    /// - Parameter port: 0 lets the system choose.
    package static func listening(port: Int = 0) throws -> LoopbackSocket {
        let descriptor = try make()
        var on: Int32 = 1
        setsockopt(descriptor.number, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
        guard withAddress(port: port, { bind(descriptor.number, $0, $1) }) == 0 else { throw Failure("bind") }
        guard listen(descriptor.number, 128) == 0 else { throw Failure("listen") }
        _ = fcntl(descriptor.number, F_SETFL, O_NONBLOCK)
        return LoopbackSocket(descriptor)
    }

    /// Waits for the next connection. The listening socket does not block in `accept` itself, which runs under a lock.
    package func accepted() throws -> LoopbackSocket {
        while true {
            var waiting = pollfd(fd: descriptor.number, events: Int16(POLLIN), revents: 0)
            guard poll(&waiting, 1, -1) >= 0 || errno == EINTR else { throw Failure("poll") }
            var code: Int32 = 0
            let connection = Descriptor {
                let number = accept(descriptor.number, nil, nil)
                code = errno
                return number
            }
            if connection.number >= 0 {
                _ = fcntl(connection.number, F_SETFL, 0)
                return LoopbackSocket(connection)
            }
            guard [EINTR, ECONNABORTED, EAGAIN].contains(code) else { throw Failure("accept", code: code) }
        }
    }

    /// The port at this end.
    package var port: Int {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor.number, $0, &length) }
        }
        return status == 0 ? Int(UInt16(bigEndian: address.sin_port)) : 0
    }

    /// - Parameter seconds: How long a read or a write may block.
    package func setTimeout(_ seconds: Double) {
        var value = timeval()
        value.tv_sec = Int(seconds)
        value.tv_usec = .init((seconds - seconds.rounded(.down)) * 1_000_000)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(descriptor.number, SOL_SOCKET, option, &value, socklen_t(MemoryLayout<timeval>.size))
        }
    }

    /// The system keeps little of what is not read: else it may take megabytes.
    package func keepLittle() {
        var bytes: Int32 = 64 * 1024
        setsockopt(descriptor.number, SOL_SOCKET, SO_RCVBUF, &bytes, socklen_t(MemoryLayout<Int32>.size))
    }

    // MARK: - Bytes

    /// - Returns: What has arrived, empty at the end.
    package func read(upTo maximum: Int = 64 * 1024) throws -> [UInt8] {
        while true {
            var count = 0
            let bytes = [UInt8](unsafeUninitializedCapacity: maximum) { buffer, initialized in
                count = recv(descriptor.number, buffer.baseAddress, maximum, 0)
                initialized = max(count, 0)
            }
            if count >= 0 { return bytes }
            guard errno == EINTR else { throw Failure("recv") }
        }
    }

    package func write(_ bytes: some Collection<UInt8>) throws {
        #if canImport(Darwin)
        let flags: Int32 = 0
        #else
        let flags = Int32(MSG_NOSIGNAL)
        #endif
        var rest = Array(bytes)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { send(descriptor.number, $0.baseAddress, $0.count, flags) }
            if count < 0 {
                if errno == EINTR { continue }
                throw Failure("send")
            }
            rest = rest.dropFirst(count)
        }
    }

    // MARK: - Ending

    /// Ends both directions and wakes whoever is blocked on the socket.
    package func shutDown() {
        shutdown(descriptor.number, Int32(SHUT_RDWR))
    }

    /// Ends the sending direction: the peer reads the end.
    package func finishWriting() {
        shutdown(descriptor.number, Int32(SHUT_WR))
    }

    /// Makes the close, which the last reference brings, a reset instead of an orderly end.
    package func resetOnClose() {
        var linger = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor.number, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger)))
    }
}
