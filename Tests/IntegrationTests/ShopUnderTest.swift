import HapaxModel
import TestSupport

/// One process of `Examples/orders-service`, with a queue of its own. It comes back at the same port.
final class ShopUnderTest: Sendable {
    let port: Int
    let queue: String
    private let server: Int
    private let drainSeconds: Int
    private let process: Locked<ChildProcess?>

    /// - Parameters:
    ///   - server: The port its events go to.
    ///   - queue: The directory of its queue.
    init(server: Int, queue: String, drainSeconds: Int = 60) throws {
        port = try LoopbackPort.unused()
        self.server = server
        self.queue = queue
        self.drainSeconds = drainSeconds
        process = Locked(nil)
    }

    /// Returns when it accepts connections.
    func start() async throws {
        let process = try ChildProcess(
            "orders-service",
            environment: [
                "SHOP_PORT": "\(port)", "SHOP_DRAIN_SECONDS": "\(drainSeconds)", "HAPAX_SERVER": "http://127.0.0.1:\(server)",
                "HAPAX_KEY": ServerUnderTest.key, "HAPAX_QUEUE": queue,
            ])
        _ = try await process.line(after: "listening on http://127.0.0.1:")
        self.process.withLock { $0 = process }
    }

    /// Gone on return.
    ///
    /// - Parameter gently: SIGTERM, otherwise SIGKILL.
    func stop(gently: Bool) async -> ChildProcess.Exit? {
        guard let process = process.withLock({ $0 }) else { return nil }
        if gently { process.terminate() } else { process.kill() }
        return await process.waitUntilExit()
    }

    /// The last of its log.
    var log: String { process.withLock { $0?.standardErrorTail } ?? "" }

    enum Answer: Hashable, Sendable {
        case taken
        /// Also no answer at all.
        case refused
    }

    /// One attempt to place an order.
    func place(number: String) async -> Answer {
        let body = #"{"number":"\#(number)","customer":"customer-1","amount":1250}"#
        let answer = try? await RawHTTP.post(
            port: port, path: "/orders", headers: ["Content-Type": "application/json", "Connection": "close"], body: Array(body.utf8))
        return answer?.status == 201 ? .taken : .refused
    }
}
