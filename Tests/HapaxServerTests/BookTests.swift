import Foundation
import HapaxModel
import TestSupport
import Testing

@testable import HapaxServer

@Suite("The books: every number that an install gives has an end (I12)", .endsWhenItHangs)
struct BookTests {
    private static let install = Sample.id(900)

    /// What an install sends: its words, and events by number and id.
    private struct Sent {
        var reportVersion: Int64 = 0
        var created: Int64
        var acknowledged: Int64 = 0
        var held: [ClosedRange<Int64>] = []
        var removed: [EventBatch.Envelope.Removed] = []
        /// The number, the event's id, and what is different about it.
        var events: [(number: Int64, id: UInt64, name: String)] = []

        func body(of install: EventID) -> [UInt8] {
            let envelope = EventBatch.Envelope(
                installID: install, reportVersion: reportVersion, created: created, acknowledged: acknowledged, held: held, removed: removed
            )
            return EventBatch(
                envelope: envelope, events: events.map { Sample.event(Sample.id($0.id), name: $0.name, sequence: $0.number) }
            ).encoded()
        }
    }

    private static func events(_ numbers: ClosedRange<Int64>, from id: UInt64 = 0, name: String = "paid") -> [(Int64, UInt64, String)] {
        numbers.map { ($0, id + UInt64($0), name) }
    }

    /// The figures in the order of the equation, and what else there is to say.
    private static func books(_ server: RunningServer, _ path: String = "/v1/trust") async throws -> [String: Any] {
        let answer = try await server.get(path)
        #expect(answer.status == 200, "\(String(decoding: answer.body, as: UTF8.self))")
        return try #require(try JSONSerialization.jsonObject(with: Data(answer.body)) as? [String: Any])
    }

    private static func equation(_ books: [String: Any]) -> [Int] {
        ["given", "stored", "duplicates", "refused", "discarded", "waiting", "missing"].map { books[$0] as? Int ?? -1 }
    }

    @Test(
        "Stored, refused, discarded, waiting and missing numbers are told apart; what is sent again changes nothing; a later end replaces an earlier one",
        arguments: StoreUnderTest.Kind.allCases)
    func everyNumberHasOneEnd(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        let long = String(repeating: "n", count: 300)
        let steps: [(what: String, sent: Sent, equation: [Int], repeated: Int)] = [
            ("only waiting", Sent(created: 3), [3, 0, 0, 0, 0, 3, 0], 0),
            ("stored in order", Sent(created: 5, events: Self.events(1...4)), [5, 4, 0, 0, 0, 1, 0], 0),
            ("the same again", Sent(created: 5, events: Self.events(1...4)), [5, 4, 0, 0, 0, 1, 0], 0),
            ("one is too long", Sent(created: 9, acknowledged: 4, events: [(5, 5, long)] + Self.events(6...7)), [9, 6, 0, 1, 0, 2, 0], 0),
            // A dead letter that was mended comes under its number.
            ("mended", Sent(created: 9, acknowledged: 7, events: [(5, 5, "paid")]), [9, 7, 0, 0, 0, 2, 0], 0),
            // Another event under a known id, and a known event under another number.
            ("a conflict", Sent(created: 9, acknowledged: 7, events: [(8, 1, "other"), (9, 2, "paid")]), [9, 7, 1, 1, 0, 0, 0], 0),
            (
                "purged and held",
                Sent(
                    reportVersion: 1, created: 14, acknowledged: 9, held: [11...11], removed: [.init(10...10, reason: "purged")],
                    events: Self.events(12...13)), [14, 9, 1, 1, 1, 2, 0], 0
            ),
            // A word from before changes nothing.
            (
                "an old word", Sent(reportVersion: 1, created: 12, acknowledged: 9, removed: [.init(11...11, reason: "late")]),
                [14, 9, 1, 1, 1, 2, 0],
                0
            ),
            // What it held is there now, and what it had purged was kept after all.
            ("all there", Sent(reportVersion: 2, created: 14, acknowledged: 13, events: Self.events(10...11)), [14, 11, 1, 1, 0, 1, 0], 0),
            // Lost between: nobody holds them, and later ones are acknowledged.
            ("a gap", Sent(reportVersion: 2, created: 20, acknowledged: 14, events: Self.events(17...18)), [20, 13, 1, 1, 0, 2, 3], 0),
            (
                "one comes after all", Sent(reportVersion: 2, created: 20, acknowledged: 18, events: Self.events(15...15)),
                [20, 14, 1, 1, 0, 2, 2],
                0
            ),
            // A copied queue: other events under numbers that have rows.
            (
                "a copy", Sent(reportVersion: 2, created: 20, acknowledged: 18, events: Self.events(17...19, from: 100)),
                [20, 15, 1, 1, 0, 1, 2], 2
            ),
        ]
        try await RunningServer.run(on: store) { server in
            for step in steps {
                #expect(try await server.post(step.sent.body(of: Self.install)).status == 200)
                let books = try await Self.books(server)
                #expect(Self.equation(books) == step.equation && books["repeated"] as? Int == step.repeated, "\(step.what): \(books)")
                #expect(books["verdict"] as? String == (step.equation[6] > 0 ? "missing" : "balanced"), "\(step.what)")
            }
            let books = try await Self.books(server)
            let reasons = (books["reasons"] as? [[String: Any]])?.map { "\($0["reason"] ?? "") \($0["by"] ?? "") \($0["events"] ?? "")" }
            #expect(reasons == ["conflict server 1"])
            let losses = try #require(books["losses"] as? [[String: Any]])
            #expect(losses.count == 1 && losses[0]["missing_ranges"] as? [[Int]] == [[14, 14], [16, 16]], "\(losses)")
            let install = try await Self.books(server, "/v1/installs/\(Self.install)")
            #expect(install["stored_ranges"] as? [[Int]] == [[1, 7], [10, 13], [15, 15], [17, 19]])
            #expect((install["fates"] as? [[String: Any]])?.map { $0["reason"] as? String } == ["conflict", "duplicate"])
            #expect(try await server.get("/v1/installs/\(Sample.id(901))").status == 404)
            let sorted = try await Self.books(server, "/v1/installs?sort=waiting")["installs"] as? [[String: Any]]
            #expect(sorted?.map { $0["install_id"] as? String } == [Self.install.description])
            #expect(try await server.get("/v1/trust", key: RunningServer.key).status == 403)
        }
    }

    @Test(
        "A store that is older than what clients were told names what it lacks; an erased user and a removed month are no loss",
        arguments: StoreUnderTest.Kind.allCases)
    func restoredStoreNamesWhatItLacks(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        try await RunningServer.run(on: store) { server in
            _ = try await server.post(Sent(created: 3, events: Self.events(1...3)).body(of: Self.install))
            let erasures = Erasures(database: store.sql)
            _ = try await erasures.finished(try await erasures.add(project: "shop", user: "customer-1"))
            #expect(Self.equation(try await Self.books(server)) == [3, 3, 0, 0, 0, 0, 0])
            // It was told of 8 before the restore, and goes on with 9.
            _ = try await server.post(Sent(created: 10, acknowledged: 8, events: Self.events(9...9)).body(of: Self.install))
            let books = try await Self.books(server)
            #expect(Self.equation(books) == [10, 4, 0, 0, 0, 1, 5] && books["verdict"] as? String == "missing")
            #expect((books["losses"] as? [[String: Any]])?.first?["missing_ranges"] as? [[Int]] == [[4, 8]])
            // Given up for lost by who looked into it; one comes after all.
            func accept(_ body: String, key: String = RunningServer.adminKey) async throws -> (status: Int, text: String) {
                let answer = try await RawHTTP.post(
                    port: server.port, path: "/v1/admin/losses/accept", headers: ["Authorization": "Bearer \(key)"], body: Array(body.utf8))
                return (answer.status, String(decoding: answer.body, as: UTF8.self))
            }
            for (body, status) in [
                (#"{"project":"nope"}"#, 404), (#"{"project":"shop","install":"x"}"#, 400), (#"{"install":"\#(Self.install)"}"#, 400),
            ] { #expect(try await accept(body).status == status) }
            #expect(try await accept(#"{"project":"shop"}"#, key: RunningServer.readKey).status == 403)
            #expect(try await accept(#"{"project":"shop","install":"\#(Sample.id(5))"}"#).status == 404)
            #expect(try await accept(#"{"project":"shop"}"#).text == #"{"dry_run":true,"events":5}"#)
            #expect(try await accept(#"{"project":"shop","yes":true}"#).text == #"{"events":5}"#)
            #expect(try await accept(#"{"project":"shop","yes":true}"#).text == #"{"events":0}"#)
            #expect(Self.equation(try await Self.books(server)) == [10, 4, 0, 5, 0, 1, 0])
            _ = try await server.post(Sent(created: 10, acknowledged: 9, events: Self.events(6...6)).body(of: Self.install))
            #expect(Self.equation(try await Self.books(server)) == [10, 5, 0, 4, 0, 1, 0])
        }
    }

    @Test(
        "A row that is deleted by hand is found by its number; those of an erased user and of a removed month are not",
        arguments: StoreUnderTest.Kind.allCases)
    func deletedRowIsFound(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        func send(_ numbers: ClosedRange<Int64>, user: String = "u", day: Int32 = Sample.day) async throws {
            let events = numbers.map {
                Sample.event(Sample.id(UInt64($0), day: day), distinctID: user, sequence: $0)
            }
            let envelope = EventBatch.Envelope(installID: Self.install, created: numbers.upperBound)
            let group = CommitGroup([try Sample.request(events, envelope: envelope)], horizon: 0)
            #expect(try await store.commit(group.storeGroup, writer: 0).isEmpty)
        }
        func lost() async throws -> [String?] {
            let rows = try await store.sql.ask(StoredNumbers.lost(store.sql.dialect), as: .owner)
            #expect(rows.allSatisfy { $0[0] == "1" && $0[1] == Self.install.description })
            return rows.map { $0[2] }
        }
        try await send(1...3, day: Sample.day - 200)
        // Without a day: of these a tombstone stays.
        let undated = EventID(high: 0x4000, low: 0b10 << 62) ?? Self.install
        let request = try Sample.request(
            [Sample.event(undated, distinctID: "u", sequence: 4)], envelope: EventBatch.Envelope(installID: Self.install, created: 4))
        _ = try await store.commit(CommitGroup([request], horizon: 0).storeGroup, writer: 0)
        try await send(5...20, user: "forgotten", day: Sample.day - 200)
        #expect(try await lost() == [])
        let erasures = Erasures(database: store.sql)
        _ = try await erasures.finished(try await erasures.add(project: "shop", user: "forgotten"))
        #expect(try await lost() == [])
        try await fixture.execute("DELETE FROM events WHERE sequence = 2")
        #expect(try await lost() == ["{[2,3)}"])
        let retention = Retention(database: store.sql)
        _ = try await retention.set(months: 2)
        _ = try await retention.perform()
        #expect(try await fixture.rows("SELECT count(*) FROM kept_events WHERE sequence IS NOT NULL") == [["1"]])
        #expect(try await lost() == ["{[2,3)}"])
    }

    @Test("Of an install with more gaps than are kept nothing is claimed, others stay known, and its events are stored as ever (I13)")
    func tooManyGapsAreUnknown() async throws {
        let long = String(repeating: "n", count: 300)
        for kind in StoreUnderTest.Kind.allCases {
            let fixture = try await StoreUnderTest(kind)
            let store = try await fixture.openWithMovingClock()
            _ = try await store.projectID(named: "shop")
            try await RunningServer.run(on: store) { server in
                func send(_ gaps: Int64, _ install: EventID, from id: UInt64) async throws {
                    let events = (1...gaps + 1).map { (number: $0 * 2, id: id + UInt64($0), name: "paid") }
                    let body = Sent(created: gaps * 2 + 2, acknowledged: gaps * 2, events: events).body(of: install)
                    #expect(try await server.receipt(body).stored == events.count)
                }
                try await send(99, Self.install, from: 0)
                #expect(Self.equation(try await Self.books(server)) == [200, 100, 0, 0, 0, 0, 100])
                for (number, gaps) in [(1, 100), (2, 900)] as [(UInt64, Int64)] {
                    try await send(gaps, Sample.id(900 + number), from: number * 1_000)
                }
                let books = try await Self.books(server)
                #expect(Self.equation(books) == [200, 100, 0, 0, 0, 0, 100])
                #expect(books["unknown"] as? [String: Int] == ["installs": 2, "events": 202 + 1_802])
                let one = try await Self.books(server, "/v1/installs/\(Sample.id(901))")
                #expect(one["is_unknown"] as? Bool == true && one["missing"] is NSNull, "\(one)")
                // Numbers that no honest install gives, often enough to overflow a sum.
                let last = Int64.max
                for number in 0..<12 as Range<UInt64> {
                    let removed: [EventBatch.Envelope.Removed] = [
                        .init(5...last, reason: "purged"), .init(1...1 << 60, reason: "\(number)"),
                    ]
                    let body = Sent(
                        reportVersion: last, created: last, acknowledged: last, held: [0...last], removed: removed,
                        events: [(last, 5_000 + number * 2, "paid"), (0, 5_001 + number * 2, "paid"), (7, 6_000 + number, long)]
                    ).body(of: Sample.id(950 + number))
                    #expect(try await server.receipt(body).stored == 2)
                }
                let hostile = try await Self.books(server)
                let sums = Self.equation(hostile)
                #expect(
                    hostile["verdict"] as? String == "missing" && sums[0] == sums.dropFirst().reduce(0, +) && sums[0] > 12_000_000_000_000)
                #expect((hostile["reasons"] as? [Any])?.count ?? 0 <= Trust.shown)
            }
        }
    }

    @Test(
        "An install with thousands of refused events stays known: its oldest numbers are only counted",
        arguments: StoreUnderTest.Kind.allCases)
    func manyRefusedEventsStayCounted(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        let long = String(repeating: "n", count: 300)
        try await RunningServer.run(on: store) { server in
            for batch in 0..<6 as Range<Int64> {
                let numbers = batch * 500 + 1...batch * 500 + 500
                let events = numbers.map { (number: $0, id: UInt64($0), name: $0 % 3 == 0 ? long : "paid") }
                _ = try await server.post(
                    Sent(created: numbers.upperBound, acknowledged: batch * 500, events: events).body(of: Self.install))
            }
            #expect(Self.equation(try await Self.books(server)) == [3_000, 2_000, 0, 1_000, 0, 0, 0])
            // A loss among the next ones is still seen.
            _ = try await server.post(Sent(created: 3_010, acknowledged: 3_000, events: Self.events(3_006...3_010)).body(of: Self.install))
            #expect(Self.equation(try await Self.books(server)) == [3_010, 2_005, 0, 1_000, 0, 0, 5])
        }
    }

    @Test(
        "An install among thousands with greater losses is found by its name, for who reads it and who accepts its loss (S16, S20)",
        arguments: StoreUnderTest.Kind.allCases)
    func namedInstallIsFound(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        func lose(_ count: Int64, _ installs: some Sequence<UInt64>) async throws {
            let reports = try installs.map { number in
                try Sample.request([], envelope: .init(installID: Sample.id(number), created: count, acknowledged: count))
            }
            _ = try await store.commit(CommitGroup(reports, horizon: 0).storeGroup, writer: 0)
        }
        try await lose(10, 1_000..<2_200)
        try await lose(1, [7])
        let losses = Losses(store: store)
        #expect(try await losses.accept(project: "shop", install: nil, isDryRun: true) == 12_001)
        for (isDryRun, count) in [(true, 1), (false, 1), (true, 0)] as [(Bool, Int64)] {
            #expect(try await losses.accept(project: "shop", install: Sample.id(7), isDryRun: isDryRun) == count)
        }
        #expect(try await losses.accept(project: "shop", install: nil, isDryRun: false) == 12_000)
        #expect(try await losses.accept(project: "shop", install: nil, isDryRun: true) == 0)
        let reader = TrustReader(database: store.sql, projectID: 1, purpose: .search(within: .seconds(60)))
        #expect(try await reader.install(Sample.id(7))?.book.figures.refused == 1)
        let plan = try await store.sql.ask(
            "EXPLAIN \(kind == .sqlite ? "QUERY PLAN" as StoreSQL : "") SELECT 1 \(reader.chosen(Sample.id(7)))",
            as: .question(QuestionTurn(within: .seconds(60))))
        #expect(plan.joined().contains { $0?.contains(kind == .sqlite ? "SEARCH" : "Index Cond") == true }, "\(plan)")
    }

    @Test(
        "An install's long story is short in its book: long reasons are cut, many ranges joined, and nothing is refused (S11)",
        arguments: StoreUnderTest.Kind.allCases)
    func longStoriesAreShort(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        try await RunningServer.run(on: store) { server in
            let held = (0..<1_000).map { (n: Int64) -> ClosedRange<Int64> in 1_000 + n * 10...1_001 + n * 10 + (n % 10 == 0 ? 7 : 0) }
            let gone = (1...99).map { EventBatch.Envelope.Removed($0 * 3...$0 * 3, reason: "\($0)" + String(repeating: "é", count: 95)) }
            let sent = Sent(reportVersion: 1, created: 20_000, acknowledged: 900, held: held, removed: gone, events: [(20_000, 1, "paid")])
            #expect(try await server.receipt(sent.body(of: Self.install)).stored == 1)
            let install = try await Self.books(server, "/v1/installs/\(Self.install)")
            let ranges = try #require(install["held_ranges"] as? [[Int64]])
            #expect(
                ranges.count == 100
                    && held.allSatisfy { range in ranges.contains { $0[0] <= range.lowerBound && range.upperBound <= $0[1] } })
            let reasons = try #require(install["fates"] as? [[String: Any]]).compactMap { $0["reason"] as? String }
            #expect(reasons.count == 99 && reasons.allSatisfy { $0.utf8.count <= 64 && $0.hasSuffix("éé") })
        }
    }

    @Test(
        "The removed numbers of a service, whose users come in turns, stay few; none of them is taken for lost (S11)",
        arguments: StoreUnderTest.Kind.allCases)
    func removedNumbersStayFew(kind: StoreUnderTest.Kind) async throws {
        let fixture = try await StoreUnderTest(kind)
        let store = try await fixture.openWithMovingClock()
        _ = try await store.projectID(named: "shop")
        for part in 0..<5 as Range<Int64> {
            let events = (part * 1_000 + 1...part * 1_000 + 1_000).map {
                Sample.event(Sample.id(UInt64($0)), distinctID: $0 % 2 == 0 ? "gone" : "other", sequence: $0)
            }
            let request = try Sample.request(events, envelope: .init(installID: Self.install, created: part * 1_000 + 1_000))
            _ = try await store.commit(CommitGroup([request], horizon: 0).storeGroup, writer: 0)
        }
        let erasures = Erasures(database: store.sql)
        _ = try await erasures.finished(try await erasures.add(project: "shop", user: "gone"))
        let removed = try #require(SequenceSet(try await fixture.rows("SELECT removed FROM installs")[0][0]))
        #expect((1...StoredNumbers.maximumRanges).contains(removed.ranges.count))
        #expect(removed.intersection(2...2).count == 1 && removed.intersection(5_000...5_000).count == 1)
        #expect(try await store.sql.ask(StoredNumbers.lost(store.sql.dialect), as: .owner).isEmpty)
    }

    @Test("A book that somebody has changed by hand is unknown, and not without losses")
    func changedBooksAreUnknown() {
        let sound: [String?] = ["5", "5", "1", "[[1, 2]]", "1", "{[3,6)}", "[]", "0", "false", nil, ""]
        #expect(InstallBook(sound[...])?.held == SequenceSet([1...2]))
        for (index, text) in [(3, "[[2, 1]]"), (3, "{"), (3, nil), (5, "x"), (6, #"[[2, 1, 3, 4, "a", true]]"#), (6, nil), (10, "1,2")] {
            var texts = sound
            texts[index] = text
            #expect(InstallBook(texts[...]) == nil, "\(index)")
        }
    }

    @Test("The example of the docs: nine sequences in three envelopes, and one that comes after all (I12)")
    func bookOfNine() throws {
        var book = InstallBook()
        func add(_ envelope: EventBatch.Envelope, _ stored: ClosedRange<Int64>, ended: [String: SequenceSet] = [:]) throws {
            var envelope = envelope
            envelope.installID = Self.install
            let report = try #require(InstallReport(envelope, projectID: 1))
            _ = book.add(.init(report: report, stored: SequenceSet([stored]), ended: ended), now: Int64(envelope.reportVersion ?? 0))
        }
        try add(.init(reportVersion: 1, created: 4), 1...2, ended: ["name_too_long": SequenceSet([3...3])])
        #expect(book.figures == .init(given: 4, stored: 2, refused: 1, waiting: 1))
        try add(
            .init(reportVersion: 2, created: 7, acknowledged: 3, held: [5...5], removed: [.init(4...4, reason: "purged")]), 6...6)
        #expect(book.figures == .init(given: 7, stored: 3, refused: 1, discarded: 1, waiting: 2) && book.missing.isEmpty)
        try add(.init(reportVersion: 3, created: 9, acknowledged: 8), 9...9)
        #expect(book.figures == .init(given: 9, stored: 4, refused: 1, discarded: 1, missing: 3))
        #expect(
            book.missing == SequenceSet([5...5, 7...8]) && book.stored == SequenceSet([1...2, 6...6, 9...9]) && book.missingSince == 3)
        try add(.init(reportVersion: 4, created: 9, acknowledged: 9), 7...7)
        #expect(book.missing == SequenceSet([5...5, 8...8]))
    }

    @Test("What is to be sent again waits; what a damaged queue says last counts without a version (I11)")
    func retriedNumbersWait() throws {
        var book = InstallBook()
        func report(_ envelope: EventBatch.Envelope) throws -> InstallReport {
            var envelope = envelope
            envelope.installID = Self.install
            return try #require(InstallReport(envelope, projectID: 1))
        }
        _ = book.add(
            .init(
                report: try report(.init(reportVersion: 1, created: 4)), stored: SequenceSet([1...1, 3...4]),
                ended: ["retry": SequenceSet([2...2])]), now: 1)
        #expect(book.figures == .init(given: 4, stored: 3, waiting: 1))
        _ = book.add(.init(report: try report(.init(reportVersion: 1, created: 4)), ended: ["conflict": SequenceSet([2...2])]), now: 2)
        #expect(book.figures == .init(given: 4, stored: 3, refused: 1))
        _ = book.add(.init(report: try report(.init(reportVersion: 1, created: 9))), now: 3)
        _ = book.add(.init(report: try report(.init(removed: [.init(5...10, reason: "damaged")]))), now: 4)
        #expect(book.figures == .init(given: 10, stored: 3, refused: 1, discarded: 6) && book.missing.isEmpty)
        _ = book.add(.init(report: try report(.init(created: 1)), ended: ["name_too_long": SequenceSet([12...12])]), now: 5)
        #expect(book.figures == .init(given: 12, stored: 3, refused: 2, discarded: 6, waiting: 1))
    }

    @Test("Sets of sequences are as a plain set has them, whatever is done to them")
    func sequenceSetsAreSets() throws {
        var random = SeededRandom.printed()
        for _ in 0..<300 {
            var (set, plain) = (SequenceSet(), Set<Int64>())
            for _ in 0..<Int.random(in: 1...30, using: &random) {
                let first = Int64.random(in: 0...60, using: &random)
                let range = first...first + Int64.random(in: 0...6, using: &random)
                if Bool.random(using: &random) {
                    set.insert(range)
                    plain.formUnion(range)
                } else {
                    set = set.subtracting(SequenceSet([range]))
                    plain.subtract(range)
                }
                let text = set.description
                #expect(Set(set.ranges.joined()) == plain && set.count == plain.count, "\(text)")
                #expect(zip(set.ranges, set.ranges.dropFirst()).allSatisfy { $0.upperBound + 1 < $1.lowerBound }, "\(text)")
                let coarse = set.coarsened(to: 3)
                #expect(coarse.ranges.count <= 3 && set.subtracting(coarse).isEmpty && (set.ranges.count > 3 || coarse == set), "\(text)")
                #expect(SequenceSet(text) == set && Set(set.intersection(range).ranges.joined()) == plain.intersection(range))
            }
        }
        for bad in ["", "{", "{[1,2)", "{[2,1)}", "{[1,x)}", "[1,2)"] { #expect(SequenceSet(bad) == nil, "\(bad)") }
    }

    @Test(
        "What waits at an install that fell silent is unheard; at a browser it is told, and the verdict stays",
        arguments: StoreUnderTest.Kind.allCases)
    func browsersMayVanish(kind: StoreUnderTest.Kind) async throws {
        let place = try await StoreUnderTest(kind)
        let store = try await place.open()
        _ = try await store.projectID(named: "shop")
        let reader = TrustReader(database: store.sql, projectID: 1, purpose: .search(within: .seconds(60)))
        func silent(_ install: String) async throws -> Trust {
            let body = #"{"install_id":"\#(install)","report_version":1,"created":3,"acknowledged":0,"events":[]}"#
            let request = try IngestRequest(json: Array(body.utf8)[...], projectID: 1)
            _ = try await store.commit(CommitGroup([request], horizon: 0).storeGroup, writer: 0)
            return try await reader.trust(since: 0, now: try await store.sql.settled() + Trust.silence + 60_000)
        }
        let browser = try await silent("0198d3b4-0000-8000-8000-000000000001")
        #expect(
            browser.verdict == .balanced && browser.vanished.installs == 1 && browser.vanished.events == 3 && browser.unheard.installs == 0)
        let both = try await silent("0198d3b4-0000-7000-8000-000000000002")
        #expect(both.verdict == .unheard && both.vanished.installs == 1 && both.unheard.installs == 1 && both.figures.waiting == 6)
        await store.close()
    }
}
