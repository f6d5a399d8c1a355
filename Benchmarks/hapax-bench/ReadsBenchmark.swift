import Foundation
import HapaxModel
import HapaxServer
import TestSupport

/// What readers wait for over weeks of events, and what they cost those who write: both stores.
struct ReadsBenchmark {
    var history: History
    /// Of one measurement of ingest.
    var events: Int
    var rounds: Int

    func run() async throws {
        signal(SIGPIPE, SIG_IGN)
        print("\n### Reads: \(history.eventsPerDay) events a day, \(history.count) in all\n")
        print("| What | aim | PostgreSQL | SQLite |")
        print("|---|---|---|---|")
        let cluster = try await PostgresCluster()
        let uri = try await cluster.makeDatabase()
        let directory = TemporaryDirectory()
        let file = directory.path + "/events.sqlite"
        let postgres = try measure(uri) { try history.write(postgres: uri) }
        let sqlite = try measure("sqlite:" + file) { try history.write(sqlite: file) }
        for (one, other) in zip(postgres, sqlite) { print("| \(one.what) | \(one.aim) | \(one.figure) | \(other.figure) |") }
        let (runs, index) = try history.rateWithUserIndex(sqlite: file)
        print(
            "| raw SQLite’s rate with its own index of users, beside without | – | – | \(index / runs, places: 2) of \(Int(runs)) rows/s |")
        try await cluster.stop(mode: .fast)
    }

    private typealias Line = (what: String, aim: String, figure: String)

    private func measure(_ store: String, _ write: () throws -> Void) throws -> [Line] {
        // The server makes the schema, so that it is the same to the letter.
        try ServerProcess(store: store, zone: Self.zone.name).stop()
        note("\(store.prefix(8))…: writing \(history.count) events")
        try write()
        let server = try ServerProcess(store: store, zone: Self.zone.name)
        defer { server.stop() }
        func seconds(_ body: () throws -> Void) rethrows -> Double {
            let start = ContinuousClock.now
            try body()
            return (ContinuousClock.now - start) / .seconds(1)
        }
        note("closing days, and looking for late events")
        let closing = try seconds { try server.waitForClosedDays(from: Self.day(-2), to: Self.day(-1)) }
        // Not before: nobody waits so long for a request.
        let reader = try HTTPConnection(port: server.port)
        func get(_ path: String) throws -> String {
            let answer = try reader.exchange(HTTPConnection.get(path, port: server.port))
            guard answer.status == 200 else { throw BenchmarkError("\(path): \(String(decoding: answer.body, as: UTF8.self))") }
            return String(decoding: answer.body, as: UTF8.self)
        }
        var lines: [Line] = [
            ("\(history.days - 1) days closed and late events counted, each", "–", "\(closing / Double(history.days - 1), places: 1) s")
        ]
        let today = "/v1/reports/daily?from=\(Self.day(0))"
        var report = ""
        let scan = try seconds { report = try get(today) }
        let count = report.firstMatch(of: /"events":{"total":(\d+)/).map { String($0.1) } ?? "?"
        lines.append(("report of an open day", "≤ 1 s", "\(scan, places: 2) s, \(count) events"))
        let again = try seconds { _ = try get(today) }
        lines.append(("the same, asked again", "–", "\(again * 1_000, places: 1) ms"))
        let month = try (0..<20).map { _ in try seconds { _ = try get("/v1/reports/daily?from=\(Self.day(-31))&to=\(Self.day(-1))") } }
        lines.append(("report of 30 closed days", "≤ 20 ms", "\(month.median * 1_000, places: 1) ms"))
        for (what, aim, path) in Self.questions {
            let first = try seconds { _ = try get(path) }
            let again = try (0..<20).map { _ in try seconds { _ = try get(path) } }
            lines.append((what, aim, "\(first, places: 2) s, again \(again.median * 1_000, places: 1) ms"))
            note("\(what): \(first, places: 2) s")
        }
        let list = try get("/v1/events?limit=500")
        let ids = list.matches(of: /"event_id":"([^"]+)"/).map { String($0.1) }
        let byID = try ids.map { id in try seconds { _ = try get("/v1/events/\(id)") } }
        lines.append(("one event by id", "≤ 2 ms", "\(byID.median * 1_000, places: 2) ms"))
        var (found, pages) = (0, 0)
        let user = try seconds {
            var after = ""
            while found < min(100, history.count / History.users) {
                let page = try get("/v1/events?distinct_id=\(History.user)&limit=100\(after)")
                found += page.matches(of: /"event_id"/).count
                pages += 1
                guard let next = page.firstMatch(of: /"next":"([^"]+)"/) else { break }
                after = "&after=\(next.1)"
            }
        }
        lines.append(
            ("a user’s latest \(found) events, as far apart as they can be", "≤ 200 ms", "\(user * 1_000, places: 0) ms, \(pages) pages"))
        var exported = 0
        let export = try seconds {
            exported = try HTTPConnection(port: server.port).drain(
                HTTPConnection.get("/v1/export?from=\(Self.day(-1))&to=\(Self.day(0))", port: server.port))
        }
        lines.append(("export of a day", "–", "\(Double(exported) / export / 1_000_000, places: 0) MB/s"))
        lines.append(try ingest(server))
        return lines
    }

    /// About a day of all events, and about closed days.
    private static var questions: [(what: String, aim: String, path: String)] {
        let (today, month) = ("from=\(day(0))", "from=\(day(-31))&to=\(day(-1))")
        return [
            ("series of a day’s hours", "≤ 0.5 s, again ≤ 5 ms", "/v1/reports/series?unit=hour&\(today)"),
            ("the same of one event", "≤ 0.5 s", "/v1/reports/series?unit=hour&event=event_3&\(today)"),
            (
                "breakdown of one event by a property of 900 values", "≤ 0.5 s",
                "/v1/reports/breakdown?event=event_3&property=$event_duration&\(today)"
            ),
            ("breakdown of all events", "–", "/v1/reports/breakdown?property=$app_version&\(today)"),
            ("funnel of three steps", "≤ 1.5 s", "/v1/reports/funnel?step=$AppStart&step=event_3&step=$AppEnd&\(today)"),
            ("return over 30 closed days, as far as there are events", "≤ 0.3 s", "/v1/reports/retention?\(month)"),
        ]
    }

    /// With the page open and all that it shows asked for, against without.
    private func ingest(_ server: ServerProcess) throws -> Line {
        var (alone, beside) = (0.0, 0.0)
        for round in 1...rounds {
            // In turn, since the store grows meanwhile.
            for hasReaders in round % 2 == 1 ? [false, true] : [true, false] {
                note("round \(round) of \(rounds): ingest \(hasReaders ? "beside readers" : "alone")")
                let readers = hasReaders ? Readers(port: server.port) : nil
                let rate = try Load.run(server: server, corpus: Corpus(count: events), batchSize: 50).rate / Double(rounds)
                readers?.stop()
                if hasReaders { beside += rate } else { alone += rate }
            }
        }
        return ("ingest beside the page and its reports", "≥ 0.95", "\(beside / alone, places: 2) of \(Int(alone)) events/s")
    }

    /// An open page: its stream, a report each ten seconds, and its panels, about the days that it draws, each minute.
    private final class Readers: Sendable {
        private let isDone = Locked(false)
        private let group = DispatchGroup()

        init(port: Int) {
            Thread.detachNewThread(in: group) { [isDone] in
                let live = try? HTTPConnection(port: port)
                _ = try? live?.drain(HTTPConnection.get("/v1/live", port: port), until: { isDone.withLock { $0 } })
            }
            let days = "from=\(ReadsBenchmark.day(-13))&to=\(ReadsBenchmark.day(1))"
            let panels = [
                "breakdown?event=event_3&property=$event_duration&\(days)", "funnel?step=$AppStart&step=event_3&step=$AppEnd&\(days)",
                "retention?\(days)", "series?over=7&from=\(ReadsBenchmark.day(-1))&to=\(ReadsBenchmark.day(0))",
            ]
            for (paths, seconds) in [(["daily"], 10), (panels, 60)] {
                Thread.detachNewThread(in: group) { [isDone] in
                    let reports = try? HTTPConnection(port: port)
                    while !isDone.withLock({ $0 }) {
                        for path in paths { _ = try? reports?.exchange(HTTPConnection.get("/v1/reports/\(path)", port: port)) }
                        // A page paces itself so; it ends when there is nothing to measure any more.
                        for _ in 0..<(10 * seconds) where !isDone.withLock({ $0 }) { Thread.sleep(forTimeInterval: 0.1) }
                    }
                }
            }
        }

        func stop() {
            isDone.withLock { $0 = true }
            group.wait()
        }
    }

    /// One whose day is in its last hour, so that an open day holds nearly all of its events. The signs are POSIX's.
    private static let zone: (name: String, hours: Int) = {
        let hour = Int(Date().timeIntervalSince1970) / 3_600 % 24
        let hours = 23 - hour > 12 ? -1 - hour : 23 - hour
        return (hours == 0 ? "UTC" : "Etc/GMT\(hours > 0 ? "-" : "+")\(abs(hours))", hours)
    }()

    /// Of the project, from today.
    fileprivate static func day(_ offset: Int) -> String {
        CalendarDay.first.advanced(by: (Int(Date().timeIntervalSince1970) + zone.hours * 3_600) / 86_400 + offset).description
    }
}
