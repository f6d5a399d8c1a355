import NIOCore
import NIOHTTP1

/// Rules of HTTP/1.1 that the framework does not enforce (RFC 9112): a request names one host (§3.2), HTTP/1.0 gets neither chunks nor
/// interim answers and its connection ends after the answer (§6.1, §9.3), and an answer to HEAD has no body, in chunks or not (§6.3). Each answer has what
/// ``CrossOrigin`` says of its request, whoever writes it.
///
/// Placed right after the decoder, where the version is still known.
final class MessageRules: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias InboundOut = HTTPServerRequestPart
    typealias OutboundIn = HTTPServerResponsePart
    typealias OutboundOut = HTTPServerResponsePart

    private struct Asked {
        var isHead: Bool
        var isOld: Bool
        var fields: [(name: String, value: String)]
    }

    private let isOrigin: (String) -> Bool

    /// Requests that have not been answered to the end, in their order; ``ConnectionDeadlines`` limits their number.
    private var asked = CircularBuffer<Asked>()
    private var hasRefused = false

    /// - Parameter isOrigin: Whether pages of an origin may use some key.
    init(_ isOrigin: @escaping (String) -> Bool) { self.isOrigin = isOrigin }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !hasRefused else { return }
        guard case .head(var head) = unwrapInboundIn(data) else { return context.fireChannelRead(data) }
        let isOld = head.version != .http1_1
        let hosts = head.headers["host"]
        guard hosts.count == 1 || (isOld && hosts.isEmpty), hosts.allSatisfy(Self.mayBeHost) else {
            hasRefused = true
            // Answered like anything else that is not HTTP.
            return context.fireErrorCaught(HTTPParserError.invalidHeaderToken)
        }
        asked.append(Asked(isHead: head.method == .HEAD, isOld: isOld, fields: CrossOrigin.fields(for: head, isOrigin)))
        if isOld {
            head.headers.replaceOrAdd(name: "connection", value: "close")
            head.headers.remove(name: "expect")
        }
        context.fireChannelRead(wrapInboundOut(.head(head)))
    }

    private static func mayBeHost(_ value: String) -> Bool { !value.contains { " \t/?#@\\".contains($0) } }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        switch unwrapOutboundIn(data) {
        case .head(var head):
            if asked.first?.isOld == true { head.version = .http1_0 }
            for field in asked.first?.fields ?? [] { head.headers.replaceOrAdd(name: field.name, value: field.value) }
            context.write(wrapOutboundOut(.head(head)), promise: promise)
        case .body where asked.first?.isHead == true: context.write(Self.nothing(wrapOutboundOut), promise: promise)
        case .body: context.write(data, promise: promise)
        case .end:
            // In a chunked answer the end is bytes as well, which HEAD must not get.
            let isHead = asked.popFirst()?.isHead == true
            context.write(isHead ? Self.nothing(wrapOutboundOut) : data, promise: promise)
        }
    }

    private static func nothing(_ wrap: (HTTPServerResponsePart) -> NIOAny) -> NIOAny { wrap(.body(.byteBuffer(ByteBuffer()))) }
}
