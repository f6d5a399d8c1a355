import HTTPTypes
import HapaxModel
import NIOCore
import NIOHTTPTypes

/// Ends connections whose sender is too slow: an idle timeout alone would let a drip of bytes hold one for ever.
///
/// A header block must be complete within ``RequestDeadlineLimits/header`` of the connection, or of its first byte on a kept connection; the
/// body within ``RequestDeadlineLimits/body`` of its header; the next request begins within ``RequestDeadlineLimits/idle`` of the last
/// answer. A late request is answered 408 if no other answer is under way, then the connection closes.
///
/// Also answers `Expect: 100-continue` (RFC 9110 §10.1.1), and at graceful stop closes connections whose request has not arrived whole.
@available(macOS 14, *)
final class RequestDeadlines: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private let limits: RequestDeadlineLimits
    private let isStopping: @Sendable () -> Bool
    private var deadline: Scheduled<Void>?
    private var unanswered = 0
    private var phase = Phase.header

    private enum Phase {
        /// Between requests, nothing of the next one seen.
        case idle
        /// A header block is due.
        case header
        /// A body is due.
        case body
    }

    /// - Parameter isStopping: Whether graceful stop has begun. A connection that is still being set up then does not hear of it.
    init(limits: RequestDeadlineLimits, isStopping: @escaping @Sendable () -> Bool) {
        self.limits = limits
        self.isStopping = isStopping
    }

    func handlerAdded(context: ChannelHandlerContext) {
        schedule(limits.header, context)
        let bound = NIOLoopBound((handler: self, context: context), eventLoop: context.eventLoop)
        if isStopping() { context.eventLoop.execute { bound.value.context.close(promise: nil) } }
        let watcher = FirstByteWatcher { bound.value.handler.bytesArrived(bound.value.context) }
        try? context.pipeline.syncOperations.addHandler(watcher, position: .first)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        deadline?.cancel()
    }

    func channelInactive(context: ChannelHandlerContext) {
        deadline?.cancel()
        context.fireChannelInactive()
    }

    /// Bytes have come that are not taken apart yet; on an idle connection the first of a header block.
    private func bytesArrived(_ context: ChannelHandlerContext) {
        guard phase == .idle else { return }
        phase = .header
        schedule(limits.header, context)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let request):
            unanswered += 1
            phase = .body
            schedule(limits.body, context)
            if request.headerFields[.expect]?.lowercased() == "100-continue" {
                context.writeAndFlush(wrapOutboundOut(.head(HTTPResponse(status: .continue))), promise: nil)
            }
        case .body: break
        case .end:
            phase = .idle
            deadline?.cancel()
        }
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        if case .end = unwrapOutboundIn(data) {
            unanswered -= 1
            // A refusal may be answered before its body has come, or the next request may have begun: their deadlines stay.
            if unanswered == 0 && phase == .idle { schedule(limits.idle, context) }
        }
        context.write(data, promise: promise)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        // What has not arrived whole would hold up the stop until its deadline; its sender sends it again.
        if event is ChannelShouldQuiesceEvent, phase == .body { return context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }

    private func schedule(_ duration: Duration, _ context: ChannelHandlerContext) {
        deadline?.cancel()
        let bound = NIOLoopBound((handler: self, context: context), eventLoop: context.eventLoop)
        deadline = context.eventLoop.scheduleTask(in: TimeAmount(duration)) {
            bound.value.handler.expire(bound.value.context)
        }
    }

    private func expire(_ context: ChannelHandlerContext) {
        let isLate = phase == .body ? unanswered == 1 : phase == .header && unanswered == 0
        if isLate {
            let requestID = RequestID.make()
            let problem = RequestProblem(.tooSlow, detail: "the request took too long to arrive")
            let body = ByteBuffer(bytes: problem.encoded(requestID: requestID))
            let head = HTTPResponse(
                status: .requestTimeout,
                headerFields: [
                    .contentType: RequestProblem.contentType, .contentLength: "\(body.readableBytes)", .connection: "close",
                    RequestID.field: requestID,
                ])
            context.write(wrapOutboundOut(.head(head)), promise: nil)
            context.write(wrapOutboundOut(.body(body)), promise: nil)
            context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        }
        context.close(promise: nil)
    }
}

/// Sees bytes before they are taken apart.
private final class FirstByteWatcher: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer

    private let bytesArrived: () -> Void

    init(bytesArrived: @escaping () -> Void) {
        self.bytesArrived = bytesArrived
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        bytesArrived()
        context.fireChannelRead(data)
    }
}
