/// One HTTP/1.1 message as it came over a socket (RFC 9112), both as bytes and taken apart.
package struct HTTPMessage: Sendable {
    /// The request line or the status line.
    package var startLine: String
    package var headers: [(name: String, value: String)]
    /// The content, chunks joined, as it is encoded.
    package var body: [UInt8]
    /// Everything as it came.
    package var bytes: [UInt8]
    /// Where the head ends in `bytes`, its empty line included.
    package var headLength: Int

    /// The first header of that name, in any case.
    package subscript(name: String) -> String? {
        headers.first { $0.name.lowercased() == name.lowercased() }?.value
    }

    /// The status of an answer; 0 for a request.
    package var status: Int {
        let words = startLine.split(separator: " ")
        return startLine.hasPrefix("HTTP/") && words.count > 1 ? Int(words[1]) ?? 0 : 0
    }

    /// The method of a request; empty for an answer.
    package var method: String {
        startLine.hasPrefix("HTTP/") ? "" : String(startLine.prefix { $0 != " " })
    }

    /// Whether the sender ends the connection behind this message.
    package var closesConnection: Bool {
        self["Connection"]?.lowercased().contains("close") == true
    }
}
