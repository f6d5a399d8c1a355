import Foundation
import HapaxModel

/// Senders that offer more than the store takes, at a fixed rate, whatever they are answered.
enum Crowd {
    struct Figures {
        var rate: Double
        var statuses: [Int: Int]
        var memoryAtThird: Double
        var memoryAtEnd: Double
    }

    private static let batchSize = 500

    /// - Parameter offered: Events a second, as long as there are connections that wait for nothing.
    static func run(server: ServerProcess, connections: Int, offered: Double, seconds: Int) throws -> Figures {
        struct Shared {
            var next = 0
            var stored = 0
            var statuses: [Int: Int] = [:]
            var failure: String?
        }
        let bodies = Corpus(count: batchSize).events
        let shared = Locked(Shared())
        let start = ContinuousClock.now
        let end = start + .seconds(seconds)
        let group = DispatchGroup()
        let port = server.port
        for _ in 0..<connections {
            Thread.detachNewThread(in: group) {
                do {
                    var connection = try HTTPConnection(port: port)
                    var generator = UUIDv7Generator()
                    while true {
                        let number = shared.withLock { shared in
                            shared.next += 1
                            return shared.next
                        }
                        let due = start + .seconds(Double(number * batchSize) / offered)
                        guard max(due, .now) < end, shared.withLock({ $0.failure == nil }) else { return }
                        // The offered rate is kept by the clock, whatever the answers are.
                        let left = due - .now
                        if left > .zero { usleep(useconds_t(left / .microseconds(1))) }
                        let (status, body, isKept) = try connection.exchange(request(bodies, &generator, port))
                        let stored = status == 200 ? try Receipt(json: Array(body)).stored : 0
                        shared.withLock { shared in
                            shared.statuses[status, default: 0] += 1
                            shared.stored += stored
                        }
                        if !isKept { connection = try HTTPConnection(port: port) }
                    }
                } catch {
                    shared.withLock { $0.failure = "\(error)" }
                }
            }
        }
        // Memory is looked at in the midst of the load, and at its end.
        usleep(useconds_t(seconds * 333_333))
        let third = server.residentMebibytes
        group.wait()
        let last = server.residentMebibytes
        let result = shared.withLock { $0 }
        if let failure = result.failure { throw BenchmarkError(failure) }
        return Figures(
            rate: Double(result.stored) / ((ContinuousClock.now - start) / .seconds(1)), statuses: result.statuses, memoryAtThird: third,
            memoryAtEnd: last)
    }

    /// The same events under new ids: their text is where the encoder puts it.
    static func request(_ events: [[UInt8]], _ generator: inout UUIDv7Generator<BufferedRandomness>, _ port: Int) -> [UInt8] {
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        let start = #"{"event_id":""#.utf8.count
        let renamed = events.map { event in
            var event = event
            event.replaceSubrange(start..<start + 36, with: Array(generator.next(unixMilliseconds: now).description.utf8))
            return event
        }
        let body = EventBatch(envelope: .init(sentAt: now), events: renamed).encoded()
        return HTTPConnection.request(body: body)
    }
}
