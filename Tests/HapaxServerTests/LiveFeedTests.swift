import HapaxModel
import Testing

@testable import HapaxServer

@Suite("What watchers are told, by a clock that is moved (R63)", .endsWhenItHangs)
struct LiveFeedTests {
    private static let start = ContinuousClock.now
    private static func at(_ milliseconds: Int64) -> ContinuousClock.Instant { start + .milliseconds(milliseconds) }
    private static func wall(_ milliseconds: Int64) -> Timestamp { Timestamp(clampingUnixMilliseconds: milliseconds) }

    private static func feed() -> LiveFeed { LiveFeed(startedAt: wall(0)) }

    private static func rows(_ count: Int, _ name: String = "a", _ outcome: Receipt.Outcome = .stored) -> [LiveFeed.Row] {
        (0..<count).map { number in LiveFeed.Row(outcome: outcome, name: Array(name.utf8)[...], json: { Array("\(number)".utf8) }) }
    }

    private static func refusal(_ at: Int64, _ reason: String = "invalid_event", name: String? = nil) -> LiveFeed.Refusal {
        LiveFeed.Refusal(at: wall(at), reason: reason, detail: "", name: name)
    }

    /// Messages as words: rows by their JSON, refusals by their reason.
    private static func words(_ messages: [LiveFeed.Message]?) -> [String]? {
        messages?.map { message in
            switch message {
            case .event(let json): String(decoding: json, as: UTF8.self)
            case .refusal(let refusal): refusal.reason
            case .rate(let counts): "rate \(counts.received)"
            case .missed(let count): "missed \(count)"
            }
        }
    }

    @Test("Fifty rows a second, then the number of those left out; the next second begins anew, however late it is asked for")
    func rowsAreBoundedAndCounted() throws {
        var feed = Self.feed()
        let subscribed = feed.subscribe(1, .init(), Self.at(0))
        let id = try #require(subscribed)
        feed.answered(1, .init(received: 70), rows: Self.rows(70))
        let first = feed.take(1, id, Self.at(900))
        #expect(Self.words(first) == (0..<50).map { "\($0)" })
        feed.answered(1, .init(received: 5), rows: Self.rows(5))
        #expect(Self.words(feed.take(1, id, Self.at(1_000))) == ["missed 25", "rate 75"])
        feed.answered(1, .init(received: 2), rows: Self.rows(2))
        #expect(Self.words(feed.take(1, id, Self.at(1_100))) == ["0", "1"])
        // A stream that nobody reads holds one second's rows, not more.
        for _ in 0..<100 { feed.answered(1, .init(received: 100), rows: Self.rows(100)) }
        #expect(feed.take(1, id, Self.at(60_000))?.count == 48 + 2)
    }

    @Test(
        "A filter by name and outcome keeps what matches, refusals among it",
        arguments: [
            (LiveFeed.Filter(), ["0", "0", "name_too_long", "conflict"]), (LiveFeed.Filter(name: Array("a".utf8)), ["0", "name_too_long"]),
            (LiveFeed.Filter(outcome: .duplicate), ["0"]), (LiveFeed.Filter(outcome: .rejected), ["name_too_long"]),
            (LiveFeed.Filter(outcome: .conflict), ["conflict"]), (LiveFeed.Filter(name: Array("b".utf8), outcome: .stored), []),
        ])
    func filtersKeepWhatMatches(filter: LiveFeed.Filter, kept: [String]) throws {
        var feed = Self.feed()
        let subscribed = feed.subscribe(1, filter, Self.at(0))
        let id = try #require(subscribed)
        feed.answered(1, .init(), rows: Self.rows(1, "a") + Self.rows(1, "b", .duplicate))
        feed.refused(1, Self.refusal(1, "name_too_long", name: "a"), Self.at(1))
        feed.refused(1, Self.refusal(1, "conflict", name: "b"), Self.at(1))
        #expect(Self.words(feed.take(1, id, Self.at(10))) == kept)
    }

    @Test("The latest 200 refusals of a project, and since when none is missing; nobody else's")
    func refusalsAreARing() {
        var feed = Self.feed()
        for number in 1...200 { feed.refused(1, Self.refusal(Int64(number)), Self.at(0)) }
        #expect(feed.refusals(of: 1).latest.count == 200 && feed.refusals(of: 1).since == Self.wall(0))
        feed.refused(1, Self.refusal(201), Self.at(0))
        let (latest, since) = feed.refusals(of: 1)
        #expect(latest.count == 200 && latest.first?.at == Self.wall(201) && since == Self.wall(2))
        #expect(feed.refusals(of: 2).latest.isEmpty && feed.refusals(of: 2).since == Self.wall(0))
    }

    @Test(
        "Fifty projects: the one refused something longest ago is forgotten, never one that is watched; what it had is not claimed to be whole"
    )
    func projectsAreBounded() throws {
        var feed = Self.feed()
        let subscribed = feed.subscribe(1, .init(), Self.at(0))
        let id = try #require(subscribed)
        for project in 2...51 as ClosedRange<Int32> { feed.refused(project, Self.refusal(Int64(project)), Self.at(Int64(project))) }
        #expect(feed.refusals(of: 2).latest.isEmpty && feed.refusals(of: 3).latest.count == 1)
        #expect(feed.refusals(of: 2).since > Self.wall(0))
        #expect(feed.take(1, id, Self.at(100)) != nil)
    }

    @Test("Sixteen streams a project; one that ends makes room; all end when the server stops")
    func streamsAreBounded() throws {
        var feed = Self.feed()
        let ids = (0..<16).compactMap { _ in feed.subscribe(1, .init(), Self.at(0)) }
        #expect(ids.count == 16 && feed.subscribe(1, .init(), Self.at(0)) == nil && feed.subscribe(2, .init(), Self.at(0)) != nil)
        feed.unsubscribe(1, ids[3])
        let subscribed = feed.subscribe(1, .init(), Self.at(0))
        let id = try #require(subscribed)
        feed.stop()
        #expect(feed.take(1, id, Self.at(1)) == nil)
    }
}
