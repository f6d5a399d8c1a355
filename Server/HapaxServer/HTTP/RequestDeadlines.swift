import HTTPTypes
import HapaxModel
import NIOCore
import NIOHTTPTypes

/// Ends connections whose sender is too slow: an idle timeout alone would let a drip of bytes hold one for ever.
///
/// The header block must have come within ``Limits/header`` of the connection, the body within ``Limits/body`` of its header, the next request
/// within ``Limits/idle`` of the last answer. A late request is answered 408 if no other answer is under way, then the connection closes.
@available(macOS 14, *)
final class RequestDeadlines: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    struct Limits: Sendable {
        var header = Duration.seconds(10)
        var body = Duration.seconds(30)
        var idle = Duration.seconds(75)
    }

    private let limits: Limits
    private var deadline: Scheduled<Void>?
    private var unanswered = 0
    private var isReading = false
    private var hasReadRequest = false

    init(limits: Limits = Limits()) {
        self.limits = limits
    }

    func handlerAdded(context: ChannelHandlerContext) {
        schedule(limits.header, context)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        deadline?.cancel()
    }

    func channelInactive(context: ChannelHandlerContext) {
        deadline?.cancel()
        context.fireChannelInactive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head:
            unanswered += 1
            isReading = true
            schedule(limits.body, context)
        case .body: break
        case .end:
            isReading = false
            hasReadRequest = true
            deadline?.cancel()
        }
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        if case .end = unwrapOutboundIn(data) {
            unanswered -= 1
            // A refusal may be answered before its body has come; the body's deadline then stays.
            if unanswered == 0 && !isReading { schedule(limits.idle, context) }
        }
        context.write(data, promise: promise)
    }

    private func schedule(_ duration: Duration, _ context: ChannelHandlerContext) {
        deadline?.cancel()
        let bound = NIOLoopBound((handler: self, context: context), eventLoop: context.eventLoop)
        deadline = context.eventLoop.scheduleTask(in: TimeAmount(duration)) {
            bound.value.handler.expire(bound.value.context)
        }
    }

    private func expire(_ context: ChannelHandlerContext) {
        let isLateBody = isReading && unanswered == 1
        let isLateHeader = !isReading && unanswered == 0 && !hasReadRequest
        if isLateBody || isLateHeader {
            let problem = RequestProblem(.tooSlow, detail: "the request took too long to arrive")
            let body = ByteBuffer(bytes: problem.encoded(requestID: ""))
            let head = HTTPResponse(
                status: .requestTimeout,
                headerFields: [
                    .contentType: RequestProblem.contentType, .contentLength: "\(body.readableBytes)", .connection: "close",
                ])
            context.write(wrapOutboundOut(.head(head)), promise: nil)
            context.write(wrapOutboundOut(.body(body)), promise: nil)
            context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        }
        context.close(promise: nil)
    }
}
