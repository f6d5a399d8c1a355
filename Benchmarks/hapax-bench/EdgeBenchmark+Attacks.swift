import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// What costs its sender little and the server much, tried on purpose: the four attacks that once silenced or swelled it.
extension EdgeBenchmark {
    private static let attackers = 5
    /// Rows that questions go over.
    private static let storedEvents = 2_000_000

    /// These alone.
    func runAttacks() async throws {
        signal(SIGPIPE, SIG_IGN)
        Descriptors.raise(to: 65_536)
        let cluster = try await PostgresCluster()
        try await attacks(cluster)
        try await cluster.stop(mode: .fast)
    }

    func attacks(_ cluster: PostgresCluster) async throws {
        bodies()
        let store = try await cluster.makeDatabase()
        // The server makes the schema, and gives the project of the events its number.
        try ServerProcess(store: store).stop()
        note("writing \(Self.storedEvents) events to ask about")
        try History(days: 1, eventsPerDay: Self.storedEvents).write(postgres: store)
        try crafted(store)
        try strangers(store)
        try dryRuns(store)
        try loops(store)
        try untaken(store)
        try headers(store)
    }

    // MARK: - One body

    /// Kinds of bodies that were found dear, as JSON of about a megabyte; each is taken apart as a request is, in this process.
    private func bodies() {
        func events(_ properties: String, name: String = #""e""#) -> String {
            let event =
                #"{"event_id":"0198d3b4-0000-7000-8000-000000000001","event":\#(name),"time":1763679999000,"distinct_id":"u","properties":\#(properties)}"#
            return #"{"events":["# + repeatElement(event, count: max(1, min(1_000, 1_000_000 / event.utf8.count))).joined(separator: ",")
                + "]}"
        }
        func list(_ element: String, bytes: Int = 30_000) -> String {
            repeatElement(element, count: bytes / (element.utf8.count + 1)).joined(separator: ",")
        }
        func members(_ count: Int) -> String { (0..<count).map { #""\#($0)":0"# }.joined(separator: ",") }
        let escaped = #""\u0061":0"#
        let deep = (0..<28).reduce("0") { inner, _ in #"{"\u0061":\#(inner)}"# }
        let ordinary = String(decoding: EventBatch(envelope: .init(), events: Corpus(count: 1_000).events).encoded(), as: UTF8.self)
        let kinds: [(what: String, body: String)] = [
            ("escaped keys, 28 deep", events(#"{"a":[\#(list(deep))]}"#)),
            ("18 keys and a repeat, again and again", events(#"{"a":[\#(list(#"{\#(members(18)),\#(escaped),"a":0}"#))]}"#)),
            ("256 short keys, one escaped", events(#"{"a":[\#(list(#"{\#(members(255)),\#(escaped)}"#))]}"#)),
            ("objects of one key twice", events(#"{"a":[\#(list(#"{"":0,"":0}"#))]}"#)),
            ("empty objects, one escaped key", events(#"{\#(escaped),"b":[\#(list("{}"))]}"#)),
            ("zeros", events(#"{"a":[\#(list("0"))]}"#)),
            ("zeros, one escaped key", events(#"{\#(escaped),"b":[\#(list("0"))]}"#)),
            ("arrays, 28 deep", events(#"{"a":[\#(list(String(repeating: "[", count: 28) + String(repeating: "]", count: 28)))]}"#)),
            ("an event that names itself again and again", events("{}", name: list(#""e","event":"e""#))),
            ("a name that is an object of escaped keys", events("{}", name: "{\(list(escaped, bytes: 2_000))}")),
            ("a name that is no text, again and again", events("{}", name: list(#"0,"event":0"#))),
            ("a name that is too long, again and again", events("{}", name: list(#""\(String(repeating: "x", count: 201))","event":0"#))),
            ("one event of a megabyte", events(#"{"a":[\#(list("0", bytes: 1_000_000))]}"#)),
            ("an envelope of one field again and again", #"{\#(list(#""held":[[1,1]]"#, bytes: 1_000_000)),"events":[]}"#),
        ]
        let usual = nanosecondsPerByte(ordinary)
        print("\n| A body of | ns a byte | ratio to ordinary events, \(usual.formatted(.number.precision(.fractionLength(1)))) ns | aim |")
        print("|---|---|---|---|")
        for (what, body) in kinds {
            let figure = nanosecondsPerByte(body)
            print("| \(what) | \(figure, places: 1) | \(figure / usual, places: 1) | ≤ 3 |")
        }
    }

    private func nanosecondsPerByte(_ body: String) -> Double {
        let bytes = Array(body.utf8)
        let times = (0..<7).map { _ in
            let start = ContinuousClock.now
            _ = try? IngestRequest(json: bytes[...], projectID: 1)
            return (ContinuousClock.now - start) / .nanoseconds(1)
        }
        return (times.min() ?? 0) / Double(bytes.count)
    }

    // MARK: - Attacks

    private func server(_ store: String) throws -> ServerProcess {
        try ServerProcess(store: store, projects: (1...Self.attackers).map { "attacker-\($0)" })
    }

    /// 45 KB of gzip each: fifty events of escaped keys, 28 deep, 7 MB in all.
    private static func craftedBody() throws -> [UInt8] {
        let nested = (0..<28).reduce("1") { inner, _ in #"{"\u0061":\#(inner)}"# }
        let members = (0..<70).map { #""k\#($0)":\#(nested)"# }.joined(separator: ",")
        let events = (0..<50).map { number in
            #"{"event_id":"\#(EventID.derived(name: "crafted", key: "\(number)"))","event":"e","time":1,"distinct_id":"u","properties":{\#(members)}}"#
        }
        return try Gzip.compress(Array("[\(events.joined(separator: ","))]".utf8), level: 9)
    }

    private func crafted(_ store: String) throws {
        let server = try server(store)
        defer { server.stop() }
        let port = server.port
        let body = try Self.craftedBody()
        func honest(_ seconds: Int) throws -> (p50: Double, p99: Double, count: Int) {
            let connection = try HTTPConnection(port: port)
            var generator = UUIDv7Generator()
            let events = Corpus(count: 50).events
            let end = ContinuousClock.now + .seconds(seconds)
            var latencies: [Double] = []
            while .now < end {
                let request = Crowd.request(events, &generator, port)
                let sent = ContinuousClock.now
                let status = try connection.exchange(request).status
                guard status == 200 else { throw BenchmarkError("an honest sender was answered \(status)") }
                latencies.append((.now - sent) / .milliseconds(1))
                // An honest sender has fifty events that often; without a pause it would be a load.
                usleep(20_000)
            }
            latencies.sort()
            return (latencies[latencies.count / 2], latencies[latencies.count * 99 / 100], latencies.count)
        }
        note("an honest sender alone, then beside crafted bodies and heavy questions")
        let alone = try honest(10)
        let crowd = Background(count: 16) { number in
            let connection = try HTTPConnection(port: port)
            let key = ServerProcess.key(of: "attacker-\(number % Self.attackers + 1)")
            let request = HTTPConnection.request(body: body, isCompressed: true, key: key)
            return { isEnough in while !isEnough() { _ = try connection.exchange(request) } }
        }
        let asking = Background(count: 1) { _ in
            let connection = try HTTPConnection(port: port)
            return { isEnough in while !isEnough() { _ = try connection.exchange(HTTPConnection.get("/v1/names", port: port)) } }
        }
        // What comes before the attackers have filled the queue is not measured.
        usleep(1_000_000)
        let beside = try honest(20)
        let failures = crowd.stop() + asking.stop()
        print("\n| Attack | figure | beside | ratio | aim |")
        print("|---|---|---|---|---|")
        print(
            "| p99 of an honest sender beside 16 that post \(body.count / 1_024) KB of crafted gzip with \(Self.attackers) projects' keys, "
                + "and questions over \(Self.storedEvents) events | \(beside.p99, places: 1) ms (p50 \(beside.p50, places: 1)) | "
                + "\(alone.p99, places: 1) ms alone (\(alone.p50, places: 1)) | \(beside.p99 / alone.p99, places: 1) | ≤ 100 ms |")
        memory(server, "that", ServerLimits().arrivingBytes + ServerLimits().heldBytes + ServerLimits.begunBytes)
        if let failure = failures.first { note("an attacker ended: \(failure)") }
    }

    /// Bodies of an SDK whose key nobody knows, packed, each of 8 MiB in 8 KB, 90 kB/s of them; one honest sender has its key in the body, too, and one in the head.
    private func strangers(_ store: String) throws {
        let server = try server(store)
        defer { server.stop() }
        let port = server.port
        let bomb = try Gzip.compress(
            Array(#"{"batch":"\#(String(repeating: "x", count: EventLimits.maximumDecompressedBodyBytes - 100))"}"#.utf8), level: 9)
        @Sendable func request(_ body: [UInt8], key: String) -> [UInt8] {
            HTTPConnection.request(path: "/v1/batch", body: body, isCompressed: true, key: key)
        }
        func honest(_ seconds: Int) throws -> (inBody: Double, inHead: Double) {
            let connection = try HTTPConnection(port: port)
            let end = ContinuousClock.now + .seconds(seconds)
            var latencies: [[Double]] = [[], []]
            var number = 0
            while .now < end {
                for (place, key) in [("no-such-key", ServerProcess.key), (ServerProcess.key, "")].enumerated() {
                    number += 1
                    let events = (0..<100).map { #"{"event":"e","userId":"u","messageId":"stranger-\#(number)-\#($0)"}"# }
                    let body = #"{"batch":[\#(events.joined(separator: ","))],"writeKey":"\#(key.1)"}"#
                    let sent = ContinuousClock.now
                    let status = try connection.exchange(request(try Gzip.compress(Array(body.utf8)), key: key.0)).status
                    guard status == 200 else { throw BenchmarkError("an honest sender was answered \(status)") }
                    latencies[place].append((.now - sent) / .milliseconds(1))
                }
                // Without a pause it would be a load itself.
                usleep(20_000)
            }
            let sorted = latencies.map { $0.sorted() }
            return (sorted[0][sorted[0].count * 99 / 100], sorted[1][sorted[1].count * 99 / 100])
        }
        note("SDKs' senders alone, then beside packed bodies without a known key")
        let alone = try honest(10)
        let pause = UInt32(4 * 1_000_000 * bomb.count / 90_000)
        let crowd = Background(count: 4) { number in
            let connection = try HTTPConnection(port: port)
            // One after the other, 90 kB a second together.
            usleep(pause / 4 * UInt32(number))
            return { isEnough in
                while !isEnough() {
                    _ = try connection.exchange(request(bomb, key: "no-such-key"))
                    usleep(pause)
                }
            }
        }
        let beside = try honest(20)
        _ = crowd.stop()
        for (what, beside, alone) in [("body", beside.inBody, alone.inBody), ("head", beside.inHead, alone.inHead)] {
            print(
                "| p99 of an SDK whose key stands in the \(what) beside 90 kB/s of packed bodies of 8 MiB without a known key | "
                    + "\(beside, places: 1) ms | \(alone, places: 1) ms alone | \(beside / alone, places: 1) | ≤ 100 ms |")
        }
    }

    /// Two hundred at once beside a database that does not answer.
    private func dryRuns(_ store: String) throws {
        let server = try server(store)
        defer { server.stop() }
        let port = server.port
        let body = try Self.craftedBody()
        let lock = try PostgresConnection(uri: store)
        try lock.execute("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        note("dry runs beside a database that does not answer")
        let crowd = Background(count: 200) { number in
            let connection = try HTTPConnection(port: port)
            let key = ServerProcess.key(of: "attacker-\(number % Self.attackers + 1)")
            let request = HTTPConnection.request(path: "/v1/events?dry_run=true", body: body, isCompressed: true, key: key)
            return { isEnough in while !isEnough() { _ = try connection.exchange(request) } }
        }
        // So long the database does not answer.
        usleep(8_000_000)
        try lock.execute("ROLLBACK")
        _ = crowd.stop()
        memory(server, "200 dry runs beside a database that hangs", ServerLimits().arrivingBytes + ServerLimits.begunBytes)
    }

    /// Six loops of one project beside another one's lists.
    private func loops(_ store: String) throws {
        let server = try server(store)
        defer { server.stop() }
        let port = server.port
        note("six loops of one project's questions, lists of another one beside them")
        let loops = Background(count: 6) { _ in
            let connection = try HTTPConnection(port: port)
            return { isEnough in while !isEnough() { _ = try connection.exchange(HTTPConnection.get("/v1/names", port: port)) } }
        }
        // The loops hold their places by then.
        usleep(1_000_000)
        let connection = try HTTPConnection(port: port)
        let request = HTTPConnection.get("/v1/events?limit=100", port: port, key: ServerProcess.readKey(of: "attacker-1"))
        var refused = 0
        var longest = 0.0
        for _ in 0..<20 {
            let start = ContinuousClock.now
            if try connection.exchange(request).status != 200 { refused += 1 }
            longest = max(longest, (.now - start) / .milliseconds(1))
        }
        _ = loops.stop()
        print(
            "| lists beside six loops of another project's `names`, refused of 20 | \(refused) | slowest \(longest, places: 0) ms | – | 0 |"
        )
    }

    /// A hundred and fifty lists of megabytes that nobody reads.
    private func untaken(_ store: String) throws {
        let server = try server(store)
        defer { server.stop() }
        note("lists that nobody reads")
        let text = String(repeating: "a long word ", count: 300)
        let events = (0..<1_200).map {
            Event(id: .derived(name: "large", key: "\($0)"), name: "large", time: 1, distinctID: "u", properties: ["text": "\(text)\($0)"])
        }
        for start in stride(from: 0, to: events.count, by: 100) {
            let body = EventBatch(envelope: .init(), events: events[start..<start + 100].map { $0.encoded().bytes }).encoded()
            let key = ServerProcess.key(of: "attacker-1")
            _ = try HTTPConnection(port: server.port).exchange(
                HTTPConnection.request(body: body, key: key))
        }
        let request = HTTPConnection.get(
            "/v1/events?limit=1000&event=large", port: server.port, key: ServerProcess.readKey(of: "attacker-1"))
        let connections = try (0..<150).map { _ in
            let connection = try HTTPConnection(port: server.port)
            _ = connection.sendWithoutWaiting(request)
            return connection
        }
        // So long nobody reads; an answer has thirty seconds.
        usleep(10_000_000)
        withExtendedLifetime(connections) {}
        // A question that is being answered has its rows as the database sent them, as events, and as JSON.
        let answering = 3 * ServerLimits.heavyReads * ServerLimits.pageBytes
        memory(server, "150 lists of 4 MB that nobody reads", ServerLimits().untakenAnswers + answering)
    }

    /// The most memory of one connection without bodies and answers, even if its header block never ends.
    private static let connectionBytes = 64 * 1024

    private func headers(_ store: String) throws {
        let server = try server(store)
        defer { server.stop() }
        note("headers that do not end")
        let count = 3_000
        let header =
            "POST /v1/events HTTP/1.1\r\nHost: h\r\n" + (0..<15).map { "X-\($0): \(String(repeating: "x", count: 1_000))\r\n" }.joined()
        let connections = try (0..<count).map { _ in
            let connection = try HTTPConnection(port: server.port)
            _ = connection.sendWithoutWaiting(Array(header.utf8))
            return connection
        }
        // All of them have arrived by then, and none is cut yet: a header has ten seconds.
        usleep(3_000_000)
        withExtendedLifetime(connections) {}
        memory(server, "\(count) headers that do not end", count * Self.connectionBytes)
    }

    private func memory(_ server: ServerProcess, _ what: String, _ budget: Int) {
        let peak = server.peakMebibytes
        let grown = peak - server.restingMebibytes
        print(
            "| memory at most, \(what) | \(grown, places: 0) MiB | \(server.restingMebibytes, places: 0) MiB at rest | – | ≤ \(budget >> 20) MiB |"
        )
    }
}

/// Senders that go on until they are told to stop.
private final class Background: Sendable {
    private let isStopped = Locked(false)
    private let failures = Locked<[String]>([])
    private let group = DispatchGroup()

    /// - Parameter sender: Makes ready what the sender of that number does until it hears that it is enough.
    init(count: Int, _ sender: @escaping @Sendable (Int) throws -> ((() -> Bool) throws -> Void)) {
        for number in 0..<count {
            Thread.detachNewThread(in: group) { [self] in
                do { try sender(number)({ isStopped.withLock { $0 } }) } catch { failures.withLock { $0.append("\(error)") } }
            }
        }
    }

    /// - Returns: Why some of them ended before.
    func stop() -> [String] {
        isStopped.withLock { $0 = true }
        group.wait()
        return failures.withLock { $0 }
    }
}
