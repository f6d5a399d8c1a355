import HTTPTypes
import Hummingbird
import NIOCore

extension ResponseBody {
    /// Bytes that are written at once; each piece gets the whole deadline of an answer, ``ServerLimits/answer``.
    fileprivate static let pieceBytes = 32 * 1024

    /// The same body, but each part is written only after the connection has taken the one before.
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
        // The framework queues any number of parts until the event loop runs and reports that there is no room; so wait for the loop.
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
