import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Rests for a moment when a connection cannot be accepted for want of descriptors: the socket stays readable, and the loop would spin.
final class AcceptPause: ChannelDuplexHandler {
    typealias InboundIn = Channel
    typealias OutboundIn = Never

    private var isResting = false

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if let error = error as? IOError, [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode) { isResting = true }
        context.fireErrorCaught(error)
    }

    func read(context: ChannelHandlerContext) {
        guard isResting else { return context.read() }
        let bound = NIOLoopBound((handler: self, context: context), eventLoop: context.eventLoop)
        context.eventLoop.scheduleTask(in: TimeAmount(ServerLimits.acceptPause)) {
            bound.value.handler.isResting = false
            bound.value.context.read()
        }
    }
}
