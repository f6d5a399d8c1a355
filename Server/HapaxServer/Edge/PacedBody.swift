import HTTPTypes
import Hummingbird
import NIOCore

extension ResponseBody {
    /// Bytes that are written at once; each piece has the time that an answer has.
    fileprivate static let pieceBytes = 32 * 1024

    /// The same body, of which the connection has taken each part before the next one is written.
    func paced(by channel: any Channel) -> ResponseBody {
        if let contentLength, contentLength <= Self.pieceBytes { return self }
        let body = self
        return ResponseBody(contentLength: contentLength) { writer in
            try await body.write(PacedWriter(base: writer, channel: channel))
        }
    }
}

private struct PacedWriter: ResponseBodyWriter {
    var base: any ResponseBodyWriter
    let channel: any Channel

    mutating func write(_ buffer: ByteBuffer) async throws {
        try await base.write(buffer)
        // The framework hands parts to the event loop without end until that has come to say that there is no room for more.
        try await channel.eventLoop.submit {}.get()
    }

    consuming func finish(_ trailingHeaders: HTTPFields?) async throws {
        try await base.finish(trailingHeaders)
    }
}

extension ResponseBodyWriter {
    mutating func write(inPieces bytes: [UInt8]) async throws {
        for start in stride(from: 0, to: bytes.count, by: ResponseBody.pieceBytes) {
            try await write(ByteBuffer(bytes: bytes[start..<min(start + ResponseBody.pieceBytes, bytes.count)]))
        }
    }
}
