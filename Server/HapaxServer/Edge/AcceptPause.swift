import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// When no descriptor is left to accept a connection, closes another one and pauses accepting: the listening socket stays readable, so the
/// event loop would spin.
final class AcceptPause: ChannelDuplexHandler {
    typealias InboundIn = Channel
    typealias OutboundIn = Never

    private let connections: Connections
    private var isResting = false

    init(connections: Connections) {
        self.connections = connections
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if let error = error as? IOError, [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode) {
            isResting = true
            connections.shed()
        }
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
