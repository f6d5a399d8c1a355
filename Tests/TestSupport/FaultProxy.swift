import Foundation
import HapaxModel

/// Stands between a client and a server on 127.0.0.1 and does to each request what its plan says.
///
/// It speaks HTTP/1.1: a request is read whole before its fault is chosen, and goes to the server on a new connection. It keeps account of
/// what really came about, so that a test can tell a run with its fault from a run without.
package final class FaultProxy: Sendable {
    /// Where clients connect.
    package let port: Int
    private let listener: LoopbackSocket
    private let core: Core

    /// More connections at once are turned away.
    private static let maximumConnections = 128

    /// - Parameter server: The port to forward to.
    package init(to server: Int, plan: FaultPlan = .pass) throws {
        let listener = try LoopbackSocket.listening()
        let core = Core(server: server, plan: plan)
        self.listener = listener
        self.core = core
        port = listener.port
        // The threads hold no reference to the proxy: dropping it must end them.
        Thread.detachNewThread {
            while let client = try? listener.accepted() {
                guard core.admit(client, limit: Self.maximumConnections) else { continue }
                Thread.detachNewThread { core.serve(client) }
            }
        }
    }

    deinit { stop() }

    /// Ends all connections, opens all gates, accepts nothing more.
    package func stop() {
        listener.shutDown()
        core.stop()
    }

    /// Sends later requests to another port: a restarted server has a new one.
    package func retarget(to server: Int) {
        core.state.withLock { $0.server = server }
    }

    package func follow(_ plan: FaultPlan) {
        core.state.withLock { $0.plan = plan }
    }

    /// What has come about so far.
    package var tally: Tally { core.state.withLock { $0.tally } }

    /// Waits until every request has ended whose client is gone already: what a killed client has sent may still be on its way.
    package func settle() async throws {
        let port = port
        try await blocking {
            // Connections are accepted in their order: once this one's end is answered, all that came before it are known.
            let last = try LoopbackSocket.connected(port: port)
            last.finishWriting()
            while try !last.read().isEmpty {}
        }
        await withCheckedContinuation { continuation in
            let isIdle = core.state.withLock { state in
                if !state.open.isEmpty { state.idleWatchers.append { continuation.resume() } }
                return state.open.isEmpty
            }
            if isIdle { continuation.resume() }
        }
    }

    /// How many connections are open, for the message of a test that hangs.
    package var openConnections: Int { core.state.withLock { $0.open.count } }

    /// Looks again at what is waited for: a condition may hold for a reason that is none of the proxy's.
    package func lookAgain() { core.tellWatchers() }

    /// Waits until the finished exchanges satisfy a condition.
    package func wait(until isEnough: @escaping @Sendable (Tally) -> Bool) async {
        await withCheckedContinuation { continuation in
            let isThere = core.state.withLock { state in
                if isEnough(state.tally) { return true }
                state.watchers.append((isEnough, { continuation.resume() }))
                return false
            }
            if isThere { continuation.resume() }
        }
    }
}

/// What the threads of one proxy share.
private final class Core: Sendable {
    struct State {
        var server: Int
        var plan: FaultPlan
        var tally = FaultProxy.Tally()
        var requests = 0
        var attempts: [EventID: Int] = [:]
        var open: [ObjectIdentifier: LoopbackSocket] = [:]
        var gates: [Gate] = []
        var hasStopped = false
        var idleWatchers: [@Sendable () -> Void] = []
        var watchers: [(isEnough: @Sendable (FaultProxy.Tally) -> Bool, resume: @Sendable () -> Void)] = []
    }
    let state: Locked<State>

    init(server: Int, plan: FaultPlan) {
        state = Locked(State(server: server, plan: plan))
    }

    func stop() {
        let (sockets, gates) = state.withLock { state in
            state.hasStopped = true
            return (Array(state.open.values), state.gates)
        }
        for socket in sockets { socket.shutDown() }
        for gate in gates { gate.open() }
    }

    // MARK: - Connections

    func admit(_ socket: LoopbackSocket, limit: Int = .max) -> Bool {
        state.withLock { state in
            guard !state.hasStopped, state.open.count < limit else { return false }
            state.open[ObjectIdentifier(socket)] = socket
            return true
        }
    }

    private func release(_ socket: LoopbackSocket) {
        let resumptions = state.withLock { state in
            _ = state.open.removeValue(forKey: ObjectIdentifier(socket))
            guard state.open.isEmpty else { return [@Sendable () -> Void]() }
            defer { state.idleWatchers = [] }
            return state.idleWatchers
        }
        for resume in resumptions { resume() }
    }

    func serve(_ client: LoopbackSocket) {
        defer { release(client) }
        var reader = HTTPReader(client)
        let mayContinue = { try client.write(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)) }
        while let message = try? reader.request(onExpectation: mayContinue) {
            guard exchange(message, client) else { return }
        }
        client.shutDown()
    }

    /// - Returns: Whether the client's connection goes on.
    private func exchange(_ message: HTTPMessage, _ client: LoopbackSocket) -> Bool {
        // Read before the lock: it may be much to decompress.
        let batch = FaultProxy.Request.batch(of: message)
        let (request, fault) = state.withLock { state in
            let first = batch?.events.first?.id
            let attempt = first.map { state.attempts[$0, default: 0] } ?? 0
            if let first { state.attempts[first] = attempt + 1 }
            let request = FaultProxy.Request(number: state.requests, message: message, batch: batch, attempt: attempt)
            state.requests += 1
            let fault = state.plan.next(request)
            if case .delayAnswer(let gate) = fault { state.gates.append(gate) }
            return (request, fault)
        }
        var exchange = FaultProxy.Exchange(request: request, fault: fault.kind)
        let goesOn = perform(fault, request, client, &exchange)
        state.withLock { $0.tally.add(exchange) }
        tellWatchers()
        return goesOn
    }

    func tellWatchers() {
        let resumptions = state.withLock { state in
            let tally = state.tally
            // Each is asked once: it may answer otherwise the next time.
            let first = state.watchers.partition { $0.isEnough(tally) }
            defer { state.watchers.removeSubrange(first...) }
            return state.watchers[first...].map(\.resume)
        }
        for resume in resumptions { resume() }
    }

    // MARK: - Faults

    private func perform(
        _ fault: Fault, _ request: FaultProxy.Request, _ client: LoopbackSocket, _ exchange: inout FaultProxy.Exchange
    ) -> Bool {
        let message = request.message
        switch fault {
        case .cutRequest(let count) where count < message.bytes.count:
            exchange.didHappen = forwardPart(message, count)
            client.shutDown()
            return false
        case .resetBeforeRequest:
            exchange.didHappen = true
            client.resetOnClose()
            return false
        case .replay(let copies, let atOnce, let delivering):
            exchange.answers = replay(message, copies: 1 + max(copies, 0), atOnce: atOnce)
            exchange.didHappen = exchange.answers.count == 1 + copies && copies > 0
            return deliver(delivering == .first ? exchange.answers.first : exchange.answers.last, request, client, &exchange)
        case .pass, .dropAnswer, .cutRequest, .cutAnswer, .delayAnswer, .resetAfterAnswer:
            guard let answer = forward(message) else {
                client.shutDown()
                return false
            }
            exchange.answers = [answer]
            return treat(answer, fault, request, client, &exchange)
        }
    }

    private func treat(
        _ answer: FaultProxy.Answer, _ fault: Fault, _ request: FaultProxy.Request, _ client: LoopbackSocket,
        _ exchange: inout FaultProxy.Exchange
    ) -> Bool {
        switch fault {
        case .dropAnswer:
            exchange.didHappen = true
            client.shutDown()
            return false
        case .resetAfterAnswer:
            exchange.didHappen = true
            client.resetOnClose()
            return false
        case .cutAnswer(let count) where count < answer.message.bytes.count:
            exchange.didHappen = (try? client.write(answer.message.bytes.prefix(max(count, 0)))) != nil
            client.shutDown()
            return false
        case .delayAnswer(let gate):
            exchange.didHappen = !gate.isOpen
            gate.blockUntilOpen()
            return deliver(answer, request, client, &exchange)
        default:
            // A cut behind the end of a message is no cut.
            exchange.didHappen = fault.kind == .pass
            return deliver(answer, request, client, &exchange)
        }
    }

    private func deliver(
        _ answer: FaultProxy.Answer?, _ request: FaultProxy.Request, _ client: LoopbackSocket, _ exchange: inout FaultProxy.Exchange
    ) -> Bool {
        if let answer, (try? client.write(answer.message.bytes)) != nil {
            exchange.wasDelivered = true
            if !answer.message.closesConnection && !request.message.closesConnection { return true }
        }
        client.shutDown()
        return false
    }

    // MARK: - The server's side

    private func withServer<Value>(_ body: (LoopbackSocket) throws -> Value) -> Value? {
        let port = state.withLock { $0.server }
        guard let server = try? LoopbackSocket.connected(port: port), admit(server) else { return nil }
        defer { release(server) }
        return try? body(server)
    }

    private func forward(_ message: HTTPMessage) -> FaultProxy.Answer? {
        withServer { server in
            try server.write(message.bytes)
            var reader = HTTPReader(server)
            return FaultProxy.Answer(try reader.answer(to: message.method))
        }
    }

    private func forwardPart(_ message: HTTPMessage, _ count: Int) -> Bool {
        withServer { server in
            try server.write(message.bytes.prefix(max(count, 0)))
            server.shutDown()
            return true
        } ?? false
    }

    private func replay(_ message: HTTPMessage, copies: Int, atOnce: Bool) -> [FaultProxy.Answer] {
        guard atOnce else { return (0..<copies).compactMap { _ in forward(message) } }
        let answers = Locked([FaultProxy.Answer?](repeating: nil, count: copies))
        let group = DispatchGroup()
        for copy in 0..<copies {
            group.enter()
            Thread.detachNewThread { [self] in
                let answer = forward(message)
                answers.withLock { $0[copy] = answer }
                group.leave()
            }
        }
        group.wait()
        return answers.withLock { $0.compactMap { $0 } }
    }
}
