/// Reads HTTP/1.1 messages off a socket, one after the other.
///
/// Content-Length, chunked transfer and, for answers, content up to the end of the connection. Heads up to 64 KiB, content up to 16 MiB.
package struct HTTPReader {
    package enum Failure: Error, Hashable {
        /// The peer ended within a message; how many of its bytes came.
        case cut(received: Int)
        case malformed
        case tooLarge
    }

    private let source: () throws -> [UInt8]
    private var buffer: [UInt8] = []
    private static let maximumHead = 64 * 1024
    private static let maximumContent = 16 * 1024 * 1024

    package init(_ socket: LoopbackSocket) {
        source = { try socket.read() }
    }

    /// - Returns: nil if the peer ended before the first byte of a request.
    package mutating func request(onExpectation: () throws -> Void = {}) throws -> HTTPMessage? {
        guard try !buffer.isEmpty || fill() else { return nil }
        return try message(isAnswer: false, hasContent: true, onExpectation: onExpectation)
    }

    /// Reads one answer; interim ones (1xx) are stepped over.
    ///
    /// - Parameter method: Of the request: the answer to HEAD has no content.
    package mutating func answer(to method: String = "POST") throws -> HTTPMessage {
        while true {
            let answer = try message(isAnswer: true, hasContent: method != "HEAD", onExpectation: {})
            if !(100..<200).contains(answer.status) { return answer }
        }
    }

    /// Reads one interim answer (1xx).
    package mutating func interimAnswer() throws -> HTTPMessage {
        let answer = try message(isAnswer: true, hasContent: false, onExpectation: {})
        guard (100..<200).contains(answer.status) else { throw Failure.malformed }
        return answer
    }

    private mutating func fill() throws -> Bool {
        let more = try source()
        buffer += more
        return !more.isEmpty
    }

    private mutating func message(isAnswer: Bool, hasContent: Bool, onExpectation: () throws -> Void) throws -> HTTPMessage {
        var message = try head()
        let status = message.status
        if isAnswer, !hasContent || (100..<200).contains(status) || status == 204 || status == 304 {
            return try finish(&message, end: message.headLength)
        }
        if message["Expect"]?.lowercased() == "100-continue" { try onExpectation() }
        if message["Transfer-Encoding"]?.lowercased().hasSuffix("chunked") == true {
            return try chunked(&message)
        }
        if let text = message["Content-Length"] {
            guard let length = Int(text), length >= 0 else { throw Failure.malformed }
            guard length <= Self.maximumContent else { throw Failure.tooLarge }
            let end = message.headLength + length
            while buffer.count < end { try need() }
            message.body = Array(buffer[message.headLength..<end])
            return try finish(&message, end: end)
        }
        if isAnswer {
            while try fill() {
                guard buffer.count <= Self.maximumContent else { throw Failure.tooLarge }
            }
            message.body = Array(buffer[message.headLength...])
            return try finish(&message, end: buffer.count)
        }
        return try finish(&message, end: message.headLength)
    }

    private mutating func need() throws {
        guard try fill() else { throw Failure.cut(received: buffer.count) }
    }

    private mutating func finish(_ message: inout HTTPMessage, end: Int) throws -> HTTPMessage {
        message.bytes = Array(buffer[..<end])
        buffer.removeFirst(end)
        return message
    }

    private mutating func head() throws -> HTTPMessage {
        var searched = 0
        while true {
            if let end = Self.headEnd(buffer, from: max(searched - 3, 0)) {
                let text = String(decoding: buffer[..<(end - 4)], as: UTF8.self)
                var lines = text.split(separator: "\r\n", omittingEmptySubsequences: false)
                guard !lines.isEmpty else { throw Failure.malformed }
                let startLine = String(lines.removeFirst())
                let headers = try lines.map { line in
                    guard let colon = line.firstIndex(of: ":") else { throw Failure.malformed }
                    let value = line[line.index(after: colon)...]
                    return (name: String(line[..<colon]), value: String(value.drop { $0 == " " || $0 == "\t" }))
                }
                return HTTPMessage(startLine: startLine, headers: headers, body: [], bytes: [], headLength: end)
            }
            searched = buffer.count
            guard searched <= Self.maximumHead else { throw Failure.tooLarge }
            try need()
        }
    }

    private static func headEnd(_ bytes: [UInt8], from start: Int) -> Int? {
        guard bytes.count >= 4 else { return nil }
        for index in start..<max(bytes.count - 3, start) where bytes[index] == 13 {
            if bytes[index + 1] == 10 && bytes[index + 2] == 13 && bytes[index + 3] == 10 { return index + 4 }
        }
        return nil
    }

    private mutating func chunked(_ message: inout HTTPMessage) throws -> HTTPMessage {
        var position = message.headLength
        while true {
            let line = try self.line(at: &position)
            guard let length = Int(line.prefix { $0.isHexDigit }, radix: 16) else { throw Failure.malformed }
            guard length <= Self.maximumContent, position + length <= Self.maximumContent else { throw Failure.tooLarge }
            if length == 0 {
                // Trailers, up to an empty line.
                while try !self.line(at: &position).isEmpty {}
                return try finish(&message, end: position)
            }
            while buffer.count < position + length + 2 { try need() }
            message.body += buffer[position..<(position + length)]
            position += length + 2
        }
    }

    private mutating func line(at position: inout Int) throws -> String {
        var index = position
        while true {
            while index + 1 < buffer.count {
                if buffer[index] == 13 && buffer[index + 1] == 10 {
                    defer { position = index + 2 }
                    return String(decoding: buffer[position..<index], as: UTF8.self)
                }
                index += 1
            }
            guard index - position <= Self.maximumHead else { throw Failure.tooLarge }
            try need()
        }
    }
}
