import HapaxModel
import Logging
import ServiceLifecycle
import TestSupport

@testable import HapaxServer

/// The server in this process, on a real socket.
struct RunningServer: Sendable {
    let port: Int

    static let key = "write-key-of-shop"
    static let otherKey = "write-key-of-app"
    static let readKey = "read-key-of-shop"
    static let otherReadKey = "read-key-of-app"
    static let adminKey = "admin-key"
    static let keys = StaticKeys(
        writers: [key: 1, otherKey: 2], readers: [readKey: 1, otherReadKey: 2], admin: adminKey, projects: ["shop": 1, "app": 2])

    /// With deadlines that no sender exceeds, however busy the machine is.
    static var options: ServerOptions {
        var options = ServerOptions()
        options.limits.multiplyDeadlines(by: 60)
        return options
    }

    /// Starts a server on the store, runs `body`, stops it gracefully and waits for its end.
    static func run<Value: Sendable>(
        on store: any EventStore = ScriptedStore(), keys: StaticKeys = RunningServer.keys, options: ServerOptions = RunningServer.options,
        logger: Logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }),
        _ body: @Sendable @escaping (RunningServer) async throws -> Value
    ) async throws -> Value {
        var options = options
        options.port = 0
        let (ports, continuation) = AsyncStream.makeStream(of: Int.self)
        let application = IngestApplication(
            store: store, keys: keys, options: options, currentTime: { Sample.now },
            logger: logger, onListening: { continuation.yield($0) })
        let group = ServiceGroup(
            configuration: .init(services: [application], logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })))
        return try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask {
                defer { continuation.finish() }
                try await group.run()
            }
            var iterator = ports.makeAsyncIterator()
            guard let port = await iterator.next() else {
                try await tasks.waitForAll()
                throw NotListening()
            }
            do {
                let value = try await body(RunningServer(port: port))
                await group.triggerGracefulShutdown()
                try await tasks.waitForAll()
                return value
            } catch {
                await group.triggerGracefulShutdown()
                throw error
            }
        }
    }

    struct NotListening: Error {}

    static let headers = ["Authorization": "Bearer \(key)", "Content-Type": "application/json"]

    func post(_ body: [UInt8], headers: [String: String] = [:]) async throws -> HTTPMessage {
        try await RawHTTP.post(port: port, headers: Self.headers.merging(headers) { $1 }, body: body)
    }

    func post(_ text: String, headers: [String: String] = [:]) async throws -> HTTPMessage {
        try await post(Array(text.utf8), headers: headers)
    }

    /// Asks with a key: as a reader of the shop, unless another is given.
    func get(_ path: String, key: String = readKey, method: String = "GET", headers: [String: String] = [:]) async throws -> HTTPMessage {
        let connection = try await RawHTTP(port: port)
        try await connection.send(
            RawHTTP.request(method, path, headers: ["Authorization": "Bearer \(key)"].merging(headers) { $1 }))
        return try await connection.answer(to: method)
    }

    func metrics() async throws -> String {
        let headers = ["Authorization": "Bearer \(Self.adminKey)"]
        return String(decoding: try await RawHTTP.get(port: port, path: "/metrics", headers: headers).body, as: UTF8.self)
    }

    /// Posts a batch and reads the receipt.
    func receipt(_ body: [UInt8], headers: [String: String] = [:]) async throws -> Receipt {
        try await post(body, headers: headers).receipt()
    }

    func receipt(_ text: String) async throws -> Receipt {
        try await receipt(Array(text.utf8))
    }
}

extension HTTPMessage {
    /// The refusal's code, if this is one of our own problem documents in every respect.
    var problemCode: RequestProblem.Code? {
        RequestProblem.code(status: status, contentType: self["Content-Type"], body: body)
    }

    func receipt() throws -> Receipt { try Receipt(json: body) }
}
