import HTTPTypes
import HapaxModel
import Hummingbird
import NIOCore
import NIOHTTP1
import NIOHTTPTypes
import NIOSSL
import NIOTLS

/// Handles one connection in front of the routes: performs what ``ConnectionDeadlines`` and ``Connections`` decide.
///
/// After a refusal it also reads the rest of the body, so that a sender that reads last gets its answer (RFC 9112 §9.6).
@available(macOS 14, *)
final class ConnectionHandler: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private let connections: Connections
    private let metrics: ServerMetrics
    private let isOrigin: @Sendable (String) -> Bool
    private var deadlines: ConnectionDeadlines
    private var timer: (due: NIODeadline, task: Scheduled<Void>)?
    private var id: ConnectionTable.ID?
    /// Whether this handler has answered in the routes' place; what they still write is dropped.
    private var hasRefused = false
    /// Whether an answer has begun and not ended.
    private var isAnswering = false
    /// Whether the latest request only asks: then nothing is lost with its answer.
    private var isQuestion = false
    /// Whether another vendor's SDK has sent the latest request.
    private var isForSender = false
    /// Whether nothing can be answered yet, because keys are still being agreed on.
    private var isShakingHands = false

    /// - Parameter isOrigin: See ``MessageRules``.
    init(connections: Connections, metrics: ServerMetrics, isOrigin: @escaping @Sendable (String) -> Bool) {
        (self.connections, self.metrics, self.isOrigin) = (connections, metrics, isOrigin)
        deadlines = ConnectionDeadlines(limits: connections.limits, openedAt: .now())
    }

    private struct Refused: Error {}

    // MARK: - The connection

    func handlerAdded(context: ChannelHandlerContext) {
        let bound = NIOLoopBound((handler: self, context: context), eventLoop: context.eventLoop)
        let loop = context.eventLoop
        deadlines = ConnectionDeadlines(limits: connections.limits, openedAt: loop.now)
        id = connections.opened(
            .init(
                shed: { loop.execute { bound.value.handler.drop(bound.value.context) } },
                cut: { loop.execute { bound.value.handler.cut(bound.value.context) } }), loop.now)
        if connections.isStopping { loop.execute { bound.value.context.close(promise: nil) } }
        // No budget counts the system's buffer for an answer that its client does not read, so the buffer is kept small.
        _ = context.channel.setOption(ChannelOptions.socketOption(.so_sndbuf), value: ServerLimits.systemSendBytes)
        let watcher = ByteWatcher { bound.value.handler.bytesArrived(bound.value.context) }
        let pipeline = context.pipeline.syncOperations
        isShakingHands = (try? pipeline.context(handlerType: NIOSSLServerHandler.self)) != nil
        try? pipeline.addHandler(watcher, position: .first)
        if let decoder = try? pipeline.handler(type: ByteToMessageHandler<HTTPRequestDecoder>.self) {
            try? pipeline.addHandler(MessageRules(isOrigin), position: .after(decoder))
        }
        schedule(context)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        forget()
    }

    func channelInactive(context: ChannelHandlerContext) {
        forget()
        context.fireChannelInactive()
    }

    private func forget() {
        timer?.task.cancel()
        timer = nil
        if let id { connections.closed(id) }
        id = nil
    }

    // MARK: - Inbound

    private func bytesArrived(_ context: ChannelHandlerContext) {
        deadlines.bytesArrived(context.eventLoop.now)
        update(context)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let now = context.eventLoop.now
        var action: ConnectionDeadlines.Action
        switch unwrapInboundIn(data) {
        case .head(let request):
            isQuestion = request.method == .get || request.method == .head
            isForSender = SenderFormat.isPath((request.path ?? "").prefix { $0 != "?" })
            action = deadlines.headArrived(now, closes: Self.asksForTheEnd(request))
        case .body(let bytes):
            action = deadlines.bodyArrived(bytes.readableBytes, now)
            if action == .forward, let id, !connections.bytesArrived(id, bytes.readableBytes, now) {
                return perform(deadlines.cut(), context, RequestProblem(.overloaded, detail: "too many bodies are being read"))
            }
        case .end: action = deadlines.requestEnded(now)
        }
        update(context)
        if action == .forward { context.fireChannelRead(data) } else { perform(action, context) }
    }

    /// `Connection` is a list, in any case, over any number of lines (RFC 9110 §7.6.1).
    private static func asksForTheEnd(_ request: HTTPRequest) -> Bool {
        request.headerFields[values: .connection].contains { line in
            line.split(separator: ",").contains { $0.filter { $0 != " " && $0 != "\t" }.lowercased() == "close" }
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        context.fireChannelReadComplete()
        // For the routes the request is over and they ask for no more bytes, so this handler does.
        if deadlines.isDiscarding { context.read() }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case TLSUserEvent.handshakeCompleted = event { isShakingHands = false }
        if case ChannelEvent.inputClosed = event, isQuestion { askerHasLeft(context) }
        if event is ChannelShouldQuiesceEvent {
            let action = deadlines.stopBegan(context.eventLoop.now)
            schedule(context)
            if action == .close { return context.close(promise: nil) }
        }
        context.fireUserInboundEventTriggered(event)
    }

    /// Who asks and closes the own side has left, as far as anybody can see, but for tools that wait for a quick answer; a sender may wait for its
    /// receipt for long.
    private func askerHasLeft(_ context: ChannelHandlerContext) {
        let bound = NIOLoopBound((handler: self, context: context), eventLoop: context.eventLoop)
        context.eventLoop.scheduleTask(in: Self.quickAnswer) {
            if bound.value.handler.id != nil { bound.value.context.close(promise: nil) }
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        deadlines.roomChanged(context.eventLoop.now, hasRoom: context.channel.isWritable)
        schedule(context)
        context.fireChannelWritabilityChanged()
    }

    // MARK: - Outbound

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard !hasRefused else {
            promise?.fail(Refused())
            return
        }
        send(unwrapOutboundIn(data), context, promise)
    }

    /// Answers `Expect: 100-continue` (RFC 9110 §10.1.1) once a route wants the body, unless the body has arrived already.
    func triggerUserOutboundEvent(context: ChannelHandlerContext, event: Any, promise: EventLoopPromise<Void>?) {
        guard event is BodyWanted else { return context.triggerUserOutboundEvent(event, promise: promise) }
        guard !hasRefused, deadlines.awaitsBody else {
            promise?.succeed()
            return
        }
        context.writeAndFlush(wrapOutboundOut(.head(HTTPResponse(status: .continue))), promise: promise)
    }

    private func send(_ part: HTTPResponsePart, _ context: ChannelHandlerContext, _ promise: EventLoopPromise<Void>?) {
        switch part {
        case .head(var head):
            isAnswering = head.status.kind != .informational
            if deadlines.answerCloses { head.headerFields[.connection] = "close" }
            context.write(wrapOutboundOut(.head(head)), promise: promise)
        case .body: context.write(wrapOutboundOut(part), promise: promise)
        case .end:
            isAnswering = false
            deadlines.answerEnded(context.eventLoop.now)
            let taken = promise ?? context.eventLoop.makePromise()
            let bound = NIOLoopBound((handler: self, context: context), eventLoop: context.eventLoop)
            taken.futureResult.whenSuccess { bound.value.handler.answerTaken(bound.value.context) }
            if let id, deadlines.phase != .arriving || deadlines.isDiscarding { connections.release(id) }
            update(context)
            context.write(wrapOutboundOut(part), promise: taken)
            if deadlines.isDiscarding { context.read() }
        }
    }

    private func answerTaken(_ context: ChannelHandlerContext) {
        let action = deadlines.answerTaken(context.eventLoop.now)
        update(context)
        perform(action, context)
    }

    /// Answers in the routes' place.
    private func refuse(_ problem: RequestProblem, _ context: ChannelHandlerContext) {
        guard !isShakingHands else { return drop(context) }
        guard !hasRefused, !isAnswering else { return context.close(promise: nil) }
        metrics.refused(problem.code)
        var problem = problem
        problem.isForSender = isForSender
        let response = problem.response(requestID: RequestID().description)
        send(.head(response.head), context, nil)
        send(.body(response.body), context, nil)
        hasRefused = true
        send(.end(nil), context, nil)
        context.flush()
    }

    /// Closes without waiting for the other side to say in TLS that it closes, too.
    private func drop(_ context: ChannelHandlerContext) {
        let secure = try? context.pipeline.syncOperations.context(handlerType: NIOSSLServerHandler.self)
        (secure ?? context).close(promise: nil)
    }

    /// How long the answer to somebody who has closed the own side may take.
    private static let quickAnswer = TimeAmount.milliseconds(500)
    private static let tooSlow = RequestProblem(.tooSlow, detail: "the request took too long to arrive")

    private func cut(_ context: ChannelHandlerContext) {
        guard id != nil else { return }
        perform(deadlines.cut(), context)
    }

    // MARK: - Time

    private func perform(
        _ action: ConnectionDeadlines.Action, _ context: ChannelHandlerContext, _ problem: RequestProblem = ConnectionHandler.tooSlow
    ) {
        switch action {
        case .none, .forward, .discard: break
        case .refuse: refuse(problem, context)
        case .close: isShakingHands ? drop(context) : context.close(promise: nil)
        }
    }

    /// Reports to ``Connections`` what this connection is doing, and sets the timer.
    private func update(_ context: ChannelHandlerContext) {
        if let id { connections.changed(id, deadlines.phase, context.eventLoop.now) }
        schedule(context)
    }

    /// Keeps a timer that fires too early, and schedules the next one then: most deadlines move on before they are reached.
    private func schedule(_ context: ChannelHandlerContext) {
        guard let next = deadlines.next, id != nil else { return }
        if let timer, timer.due <= next { return }
        timer?.task.cancel()
        let bound = NIOLoopBound((handler: self, context: context), eventLoop: context.eventLoop)
        timer = (next, context.eventLoop.scheduleTask(deadline: next) { bound.value.handler.expire(bound.value.context) })
    }

    private func expire(_ context: ChannelHandlerContext) {
        timer = nil
        let action = deadlines.expired(context.eventLoop.now)
        schedule(context)
        perform(action, context)
    }
}

/// A route has begun to read the body of a request that asked for `100 Continue`.
struct BodyWanted: Sendable {}

/// Sees bytes before they are parsed.
private final class ByteWatcher: ChannelInboundHandler {
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
