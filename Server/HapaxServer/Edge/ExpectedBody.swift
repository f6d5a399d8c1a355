import Hummingbird
import NIOCore

/// The body of a request that asked for `100 Continue`. That is sent when a route begins to read, so that a sender whose header is
/// refused need not send the body (RFC 9110 §10.1.1).
struct ExpectedBody: AsyncSequence, Sendable {
    typealias Element = ByteBuffer

    let base: RequestBody
    let channel: any Channel

    struct AsyncIterator: AsyncIteratorProtocol {
        var base: RequestBody.AsyncIterator
        var channel: (any Channel)?

        mutating func next() async throws -> ByteBuffer? {
            if let channel { channel.triggerUserOutboundEvent(BodyWanted(), promise: nil) }
            channel = nil
            return try await base.next()
        }
    }

    func makeAsyncIterator() -> AsyncIterator { AsyncIterator(base: base.makeAsyncIterator(), channel: channel) }
}
