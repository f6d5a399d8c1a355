import Foundation
import GRDB
import HapaxModel
import TestSupport
import Testing

@testable import HapaxClient

/// Two processes of a web service that embeds the client are restarted one after the other while customers place orders.
@Suite("Rolling restarts of a service", .serialized, .endsWhenItHangs)
struct RollingRestartTests {
    /// How one run differs from another; the last two are bugs, planted to see that the audit catches them.
    struct Scenario: Sendable {
        var gently = true
        /// Each attempt is made under a new number, as with an id that is not derived from the order.
        var numbersAttempts = false
        /// The events of a killed process are thrown away before it starts again.
        var losesQueues = false
    }

    private static let customers = 8

    @Test(
        "two processes restarted in turn by SIGTERM under load: every answered order is stored once, nothing is lost (I1, I2, I6, I17)",
        arguments: PipelineStore.Kind.allCases)
    func restartedGently(kind: PipelineStore.Kind) async throws {
        let violations = try await run(kind, Scenario())
        #expect(violations == [])
    }

    @Test(
        "two processes killed in turn by SIGKILL under load: every answered order is stored once, nothing is lost (I1, I2, I6)",
        arguments: PipelineStore.Kind.allCases)
    func killed(kind: PipelineStore.Kind) async throws {
        let violations = try await run(kind, Scenario(gently: false))
        #expect(violations == [])
    }

    @Test("a request that never ends keeps no process from stopping, and costs no order that was answered (I6, I17)")
    func endlessRequestIsCutOff() async throws {
        let directory = TemporaryDirectory("shop")
        let shop = try ShopUnderTest(server: try LoopbackPort.unused(), queue: directory.path("queue"), drainSeconds: 0)
        try await shop.start()
        let endless = try await RawHTTP(port: shop.port)
        let order = Array(#"{"number":"A-1","customer":"c","amount":1}"#.utf8)
        try await endless.send(RawHTTP.request("POST", "/orders", headers: ["Content-Type": "application/json"], body: order))
        #expect(try await endless.answer().status == 201)
        try await endless.send(Array("POST /orders HTTP/1.1\r\nHost: shop\r\nContent-Length: 100\r\n\r\n12345".utf8))
        #expect(await shop.stop(gently: true) == .exited(0))
        endless.close()
        #expect(try QueueContents(shop.queue).waiting == 1)
    }

    @Test("a process that starts without its queue refuses orders, and takes them when the queue is there (I12, I17)")
    func startsItsClientLater() async throws {
        let directory = TemporaryDirectory("shop")
        let shop = try ShopUnderTest(server: try LoopbackPort.unused(), queue: directory.path("queue"), drainSeconds: 0)
        try Data().write(to: URL(fileURLWithPath: shop.queue))
        try await shop.start()
        #expect(await shop.place(number: "A-1") == .refused)
        try FileManager.default.removeItem(atPath: shop.queue)
        while await shop.place(number: "A-1") == .refused {}
        #expect(await shop.stop(gently: true) == .exited(0))
        let contents = try QueueContents(shop.queue)
        #expect(contents.waiting == 1 && contents.files.first?.counters.dropped["disabled"] ?? 0 > 0)
    }

    @Test("Planted: attempts that make events of their own are caught as stored twice (I2)")
    func attemptsOfTheirOwnAreCaught() async throws {
        let violations = try await run(.sqlite, Scenario(numbersAttempts: true))
        #expect(!violations.isEmpty)
        #expect(violations.allSatisfy { if case .storedTwice = $0 { true } else { false } })
    }

    @Test("Planted: a queue that does not survive its process is caught as lost (I1, I6)")
    func lostQueueIsCaught() async throws {
        let violations = try await run(.sqlite, Scenario(gently: false, losesQueues: true))
        #expect(!violations.isEmpty)
        #expect(violations.allSatisfy { if case .lost = $0 { true } else { false } })
    }

    // MARK: - The run of all of these

    private func run(_ kind: PipelineStore.Kind, _ scenario: Scenario) async throws -> [Audit.Violation] {
        let store = try await PipelineStore(kind)
        let server = try await ServerUnderTest.start(store)
        // Some answers are lost after the commit, so that batches are sent again, also while a process drains.
        let faults = FaultPlan { $0.number.isMultiple(of: 3) ? .dropAnswer : .pass }
        let proxy = try FaultProxy(to: server.port, plan: faults)
        let directory = TemporaryDirectory("shops")
        let shops = try ["first", "second"].map { try ShopUnderTest(server: proxy.port, queue: directory.path($0)) }
        for shop in shops { try await shop.start() }

        let orders = OrderBook()
        let load = Task {
            await withTaskGroup(of: Void.self) { group in
                for customer in 0..<Self.customers {
                    group.addTask { await Self.order(as: customer, at: shops, orders, scenario.numbersAttempts) }
                }
            }
        }
        for _ in 0..<2 {
            for shop in shops {
                await orders.wait(for: 60)
                if scenario.losesQueues {
                    // What is taken from now on waits in the queues.
                    proxy.follow(FaultPlan { _ in .resetBeforeRequest })
                    await orders.wait(for: 60)
                }
                let exit = await shop.stop(gently: scenario.gently)
                #expect(exit == (scenario.gently ? .exited(0) : .signaled(SIGKILL)), "\(shop.log)")
                if scenario.losesQueues { try FileManager.default.removeItem(atPath: shop.queue) }
                proxy.follow(faults)
                try await shop.start()
            }
        }
        await orders.wait(for: 60)
        orders.close()
        await load.value
        proxy.follow(.pass)
        for shop in shops {
            #expect(await shop.stop(gently: true) == .exited(0), "\(shop.log)")
            let left = try QueueContents(shop.queue)
            #expect(left.waiting == 0 && left.deadLettered == 0, "\(shop.log)")
        }
        await server.stop()

        // The run was what it claims to be: attempts failed and were repeated, answered orders were placed again, batches were sent twice.
        let tally = orders.tally
        #expect(tally.refused > 0 && tally.repeated > 0)
        #expect(proxy.tally.happened(.dropAnswer) > 0)

        // An order is what must be there once, whatever ids its events have.
        var audit = Audit()
        audit.reports = tally.answered.map { Audit.Report(id: Self.identity(of: $0)) }
        audit.rows = try await store.orderNumbers().map { number in
            Audit.Row(id: Self.identity(of: String(number.prefix { $0 != "/" })))
        }
        return audit.violations
    }

    private static func identity(of order: String) -> EventID { .derived(name: "order", key: order) }

    /// Places orders, each again and again until it is answered, at one process or the other; every fourth once more although it is answered,
    /// as by a customer who did not see the answer.
    private static func order(as customer: Int, at shops: [ShopUnderTest], _ orders: OrderBook, _ numbersAttempts: Bool) async {
        var count = 0
        while !orders.isClosed {
            count += 1
            let order = "\(customer)-\(count)"
            var attempt = 0
            func place() async -> ShopUnderTest.Answer {
                attempt += 1
                let shop = shops[(customer + count + attempt) % shops.count]
                let answer = await shop.place(number: numbersAttempts ? "\(order)/\(attempt)" : order)
                if answer == .refused { orders.refused() }
                return answer
            }
            while await place() == .refused {}
            if count.isMultiple(of: 4) {
                while await place() == .refused {}
                orders.repeated()
            }
            orders.answered(order)
        }
    }
}

/// What the customers know.
private final class OrderBook: Sendable {
    struct Tally: Sendable {
        var answered: [String] = []
        /// Attempts without the answer that the order is taken.
        var refused = 0
        /// Orders placed again after they had been answered.
        var repeated = 0
    }

    private struct State {
        var tally = Tally()
        var isClosed = false
        var waiters: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }

    private let state = Locked(State())

    var tally: Tally { state.withLock { $0.tally } }
    var isClosed: Bool { state.withLock { $0.isClosed } }

    func close() { state.withLock { $0.isClosed = true } }
    func refused() { state.withLock { $0.tally.refused += 1 } }
    func repeated() { state.withLock { $0.tally.repeated += 1 } }

    func answered(_ order: String) {
        let ready = state.withLock { state in
            state.tally.answered.append(order)
            let count = state.tally.answered.count
            let ready = state.waiters.filter { $0.count <= count }
            state.waiters.removeAll { $0.count <= count }
            return ready
        }
        for waiter in ready { waiter.continuation.resume() }
    }

    /// Returns once so many more orders are answered.
    func wait(for more: Int) async {
        await withCheckedContinuation { continuation in
            state.withLock { state in
                state.waiters.append((state.tally.answered.count + more, continuation))
            }
        }
    }
}

extension PipelineStore {
    /// The order of each stored event, by the store's own word.
    fileprivate func orderNumbers() async throws -> [String] {
        switch kind {
        case .postgres:
            return try await query("SELECT properties->>'order' FROM events WHERE event = 'order_placed'").compactMap(\.first)
        case .sqlite:
            return try await read { db in
                try String.fetchAll(db, sql: "SELECT properties ->> '$.order' FROM events WHERE event = 'order_placed'")
            }
        }
    }
}
