import Foundation
import HapaxModel
import HapaxServer
import TestSupport
import Testing

/// docs/browsers.md: `hapax.js` in a real browser, on a page of another origin than the server's.
@Suite("hapax.js (I2, I5, I12)", .enabled(if: Browser.path != nil, "\(Browser.isMissing)"), .serialized, .endsWhenItHangs)
struct ScriptTests {
    /// Tracks so many events, each with its mark.
    private static func track(_ marks: Range<Int>, in window: String = "window") -> String {
        "(() => { for (let mark = \(marks.lowerBound); mark < \(marks.upperBound); mark++) \(window).hapax.track('order_viewed', { mark }) })()"
    }

    private static let problem = #"{"type":"about:blank","title":"The server is busy","status":503,"code":"overloaded","detail":"later"}"#

    /// Each mark once, and whatever else is stored once, too.
    private static func expectOnce(_ marks: Range<Int>, _ rows: [Site.Row], _ comment: Comment = "") {
        #expect(rows.compactMap { $0["mark"].flatMap { Int($0) } }.sorted() == Array(marks), comment)
        #expect(Set(rows.map(\.event.event_id)).count == rows.count, comment)
    }

    @Test(
        "Each event is stored once, whatever is answered meanwhile; who it is lasts as long as the page says",
        arguments: ["none", "tab", "device"])
    func eventsAreStoredOnce(identity: String) async throws {
        try await Site.run { site in
            site.page("/", "data-id=\(identity)")
            try await site.open("/?utm_source=news&other=1")
            site.answer([
                .lost, .status(503, Self.problem), .status(200, "<html>Please log in</html>", type: "text/html"),
                .status(200, #"{"batch_id":"0198d3b4-0000-7000-8000-000000000001","received":1,"stored":1,"results":[]}"#),
                .status(413, #"{"code":"body_too_large","status":413}"#), .lost, .status(502, "no", type: "text/plain"),
            ])
            try await site.browser.run(Self.track(0..<60))
            try await site.flush()
            let first = try await site.rows()
            Self.expectOnce(0..<60, first)
            let page = try #require(first.first { $0.event.event == "$page" })
            #expect(page["$path"] == "/" && page["$title"] == "Page /" && page["utm_source"] == "news" && page["other"] == nil)
            #expect(page["$lib"] == "hapax.js" && page["$session_id"] != nil && page["$bot"] == "true")
            #expect(first.allSatisfy { ($0.sequence != nil) == (identity == "device") })
            try await site.browser.reload()
            try await site.flush()
            let users = Set(try await site.rows().map(\.event.distinct_id))
            #expect(users.count == (identity == "none" ? 2 : 1))
            let stored = try await site.browser.run("Object.keys(localStorage).length + ' ' + Object.keys(sessionStorage).length")
            #expect(stored.hasPrefix("0 ") == (identity != "device") && stored.hasSuffix(" 0") == (identity != "tab"), "\(stored)")
        }
    }

    @Test("What several tabs leave behind is delivered by a later page, each event once, and the books are balanced")
    func tabsShareAQueue() async throws {
        try await Site.run { site in
            site.page("/", "data-id=device data-pages=off")
            try await site.open()
            site.answer(1_000, .status(503, Self.problem))
            // One for each gesture.
            for query in ["a", "b"] { try await site.browser.run("((window.others ??= []).push(open('/?\(query)')), 1)") }
            try await site.browser.until("others.every((tab) => tab.hapax?.version)")
            for number in 0..<2 { try await site.browser.run(Self.track(20 * number..<20 * number + 20, in: "others[\(number)]")) }
            try await site.browser.run(Self.track(40..<50))
            try await site.browser.run("hapax.flush()")
            #expect(try await site.rows().isEmpty)
            try await site.browser.run("others.forEach((tab) => tab.close())")
            site.answer([])
            try await site.browser.reload()
            try await site.flush()
            let rows = try await site.rows()
            Self.expectOnce(0..<50, rows)
            let trust = try await site.trust()
            #expect(trust.contains(#""installs":1,"#) && trust.contains(#""given":50,"#) && trust.contains(#""missing":0,"#), "\(trust)")
            #expect(trust.contains(#""waiting":0,"#) && trust.contains(#""repeated":0,"#), "\(trust)")
        }
    }

    @Test("A browser that is killed sends what it had written when it runs again, each event once")
    func killedBrowserSendsLater() async throws {
        try await Site.run { site in
            site.page("/", "data-id=device data-pages=off")
            try await site.open()
            site.answer(1_000, .status(503, Self.problem))
            try await site.browser.run(Self.track(0..<20))
            let storage = URL(filePath: site.browser.profile).appending(path: "Default/Local Storage/leveldb")
            // It writes some seconds later.
            let end = ContinuousClock.now + .seconds(120)
            func isWritten() -> Bool {
                let files = (try? FileManager.default.contentsOfDirectory(at: storage, includingPropertiesForKeys: nil)) ?? []
                return files.contains { (try? Data(contentsOf: $0))?.range(of: Data(#""mark":19"#.utf8)) != nil }
            }
            while !isWritten(), .now < end { await Task.yield() }
            await site.browser.kill()
            site.answer([])
            let browser = try await Browser(profile: site.browser.profile)
            try await browser.open(site.address)
            for _ in 0..<50 where try await browser.run("hapax.flush()") != "true" {}
            Self.expectOnce(0..<20, try await site.rows())
            let trust = try await site.trust()
            #expect(trust.contains(#""given":20,"#) && trust.contains(#""missing":0,"#) && trust.contains(#""repeated":0,"#), "\(trust)")
        }
    }

    @Test("A tab that is duplicated sends nothing twice, and a clock that is set back neither")
    func copiesAndClocksAreHarmless() async throws {
        try await Site.run { site in
            for identity in ["tab", "device"] { site.page("/\(identity)", "data-id=\(identity) data-pages=off") }
            try await site.open("/tab")
            site.answer(1_000, .status(503, Self.problem))
            try await site.browser.run(Self.track(0..<5))
            // What an opened page of the same site begins with is a copy of what the tab keeps.
            try await site.browser.run("(window.other = open('/tab'), 1)")
            try await site.browser.until("other.hapax?.version")
            #expect(try await site.browser.run("Object.keys(other.sessionStorage).filter((name) => name.includes(' e.')).length") == "5")
            site.answer([])
            try await site.browser.run("Promise.all([hapax.flush(), other.hapax.flush()])")
            try await site.flush()
            try await site.open("/device")
            for (number, hours) in [0, -5, 3, -1].enumerated() {
                try await site.browser.run("(window.real ??= Date.now, Date.now = () => real() + \(hours) * 36e5, 1)")
                try await site.browser.run(Self.track(5 + number * 5..<10 + number * 5))
                try await site.flush()
            }
            let rows = try await site.rows()
            Self.expectOnce(0..<25, rows)
            #expect(rows.compactMap(\.sequence).sorted() == Array(1...20))
            #expect(try await site.trust().contains(#""missing":0,"#))
        }
    }

    @Test("A page that is loaded before anybody looks at it is counted when somebody does")
    func prerenderedPageCountsWhenSeen() async throws {
        try await Site.run { site in
            let rules =
                #"<script type="speculationrules">{"prerender":[{"source":"list","urls":["/next"],"eagerness":"immediate"}]}</script>"#
            // It is looked at when it has said that it is loaded.
            site.page("/", before: rules + "<script>onstorage = ({ key }) => { if (key === 'loaded') location.href = '/next' }</script>")
            let loaded = "onload = () => setTimeout(() => localStorage.setItem('loaded', 1))"
            let seen = "document.addEventListener('prerenderingchange', () => { document.title = 'seen' })"
            site.page("/next", before: "<script>\(seen); \(loaded)</script>")
            // Chromium loads no page so while somebody debugs it.
            let other = try ChildProcess(Browser.path ?? "", Browser.flags(site.browser.profile + "-other") + [site.address])
            defer { other.kill() }
            var rows: [Site.Row] = []
            let end = ContinuousClock.now + .seconds(120)
            while rows.count < 2, .now < end { rows = try await site.rows() }
            #expect(rows.map { $0["$path"] } == ["/", "/next"] && rows.last?["$title"] == "seen")
        }
    }

    @Test("Two tabs that send at once number no event twice")
    func tabsSendAtOnce() async throws {
        try await Site.run { site in
            site.page("/", "data-id=device data-pages=off")
            try await site.open()
            try await site.browser.run("(window.other = open('/?a'), 1)")
            try await site.browser.until("other.hapax?.version")
            for number in 0..<10 {
                try await site.browser.run(Self.track(number * 10..<number * 10 + 5))
                try await site.browser.run(Self.track(number * 10 + 5..<number * 10 + 10, in: "other"))
                try await site.browser.run("Promise.all([hapax.flush(), other.hapax.flush()])")
            }
            try await site.flush()
            let rows = try await site.rows()
            Self.expectOnce(0..<100, rows)
            #expect(rows.compactMap(\.sequence).sorted() == Array(1...100))
            #expect(rows.allSatisfy { $0.install_id?.dropFirst(14).first == "8" }, "a browser's")
        }
    }

    @Test("What a page tracks as it ends is stored, though nothing of it is kept", arguments: ["none", "device"])
    func lastWordsArrive(identity: String) async throws {
        try await Site.run { site in
            site.page("/", "data-id=\(identity) data-pages=off")
            site.page("/next", "data-id=\(identity) data-pages=off")
            try await site.open()
            try await site.browser.run("(addEventListener('pagehide', () => { \(Self.track(0..<3)) }, { capture: true }), 1)")
            try await site.open("/next")
            try await site.flush()
            var rows: [Site.Row] = []
            // The last request of the page before may still be on its way.
            let end = ContinuousClock.now + .seconds(120)
            while rows.count < 3, .now < end { rows = try await site.rows() }
            Self.expectOnce(0..<3, rows)
        }
    }

    @Test("A full queue refuses what is new, and the books say how many")
    func fullQueueIsCounted() async throws {
        try await Site.run { site in
            site.page("/", "data-id=device data-pages=off")
            try await site.open()
            site.answer(1_000, .status(503, Self.problem))
            try await site.browser.run(Self.track(0..<205))
            #expect(try await site.browser.run("hapax.track('more')") == "null")
            #expect(try await site.browser.run("hapax.track('large', { text: 'x'.repeat(40000) })") == "null")
            #expect(try await site.browser.run("(() => { const own = {}; own.own = own; return hapax.track('circle', own) })()") == "null")
            site.answer([])
            try await site.flush()
            Self.expectOnce(0..<200, try await site.rows())
            let refused = try JSONDecoder().decode([String: Int].self, from: Data(try await site.refused().utf8))
            #expect(refused == ["quota_full": 6, "event_too_large": 1, "invalid": 1])
            let trust = try await site.trust()
            #expect(trust.contains(#""given":200,"#) && trust.contains(#""missing":0,"#))
        }
    }

    @Test(
        "Without consent nothing is kept and nothing is sent; with it, all from the page's beginning; withdrawn, all is forgotten but that")
    func consentIsAsked() async throws {
        try await Site.run { site in
            // However it is spelt.
            site.page("/", "data-id=device data-consent data-pages=off")
            try await site.open()
            try await site.browser.run(Self.track(0..<3))
            #expect(try await site.browser.run("hapax.flush()") == "false")
            #expect(try await site.browser.run("Object.keys(localStorage).length") == "0" && site.asked.isEmpty)
            try await site.browser.run("hapax.consent(true)")
            try await site.flush()
            Self.expectOnce(0..<3, try await site.rows())
            site.answer(1_000, .status(503, Self.problem))
            try await site.browser.run(Self.track(3..<6))
            try await site.browser.run("hapax.flush()")
            site.answer([])
            try await site.browser.run("hapax.consent(false)")
            #expect(
                try await site.browser.run("Object.entries(localStorage).join()") == "hapax \(site.origin)/v1/events?key=demo consent,no")
            try await site.browser.run("hapax.identify('somebody')")
            #expect(try await site.browser.run("Object.keys(localStorage).length") == "1")
            #expect(try await site.browser.run("hapax.track('after')") == "null")
            try await site.browser.reload()
            #expect(try await site.browser.run("hapax.track('after')") == "null")
            Self.expectOnce(0..<3, try await site.rows())
            let trust = try await site.trust()
            #expect(trust.contains(#""discarded":3,"#) && trust.contains("opted_out") && trust.contains(#""missing":0,"#), "\(trust)")
            // The last word counts.
            try await site.browser.run("(hapax.consent(false), hapax.consent(true), \(Self.track(3..<4)))")
            try await site.flush()
            Self.expectOnce(0..<4, try await site.rows())
        }
    }

    @Test("A browser that forbids storage, or the signal against tracking: the first sends from memory, the second not at all")
    func storageIsForbidden() async throws {
        try await Site.run { site in
            let denies =
                "<script>Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError') } })</script>"
            site.page("/", "data-id=device data-pages=off", before: denies)
            try await site.open()
            try await site.browser.run(Self.track(0..<3))
            try await site.flush()
            Self.expectOnce(0..<3, try await site.rows())
            let signal = "<script>Object.defineProperty(navigator, 'globalPrivacyControl', { value: true })</script>"
            site.page("/gpc", "data-id=device data-gpc=honour", before: signal)
            try await site.open("/gpc")
            #expect(try await site.browser.run("hapax.track('e')") == "null")
            #expect(try await site.browser.run("Object.keys(localStorage).length") == "0")
        }
    }

    @Test("A page is one event: after pushState and back if the path changed, not after another query; calls before the script count")
    func pagesAreTracked() async throws {
        try await Site.run { site in
            let stub =
                "<script>window.hapax=window.hapax||new Proxy({q:[]},{get:(t,n)=>t[n]||((...a)=>{t.q.push([n,a])})});hapax.track('early',{mark:0});hapax.set({plan:'pro'})</script>"
            // Loaded twice; and an attribute that is misspelt is no silence.
            site.page("/", before: stub + #"<script src="\#(site.origin)/hapax.js" data-key="demo" data-id=device></script>"#)
            try await site.open()
            for step in [
                "history.pushState({}, '', '/a')", "history.pushState({}, '', '/a?q=1')", "history.replaceState({}, '', '/b?q=1')",
            ] {
                try await site.browser.run("new Promise((resolve) => { \(step); setTimeout(resolve, 20) })")
            }
            try await site.browser.run(
                "new Promise((resolve) => { addEventListener('popstate', () => setTimeout(resolve, 20)); history.go(-2) })")
            try await site.browser.run("hapax.page('/given')")
            try await site.flush()
            let rows = try await site.rows()
            #expect(rows.filter { $0.event.event == "$page" }.map { $0["$path"] } == ["/", "/a", "/", "/given"])
            Self.expectOnce(0..<1, rows)
            #expect(rows.first { $0.event.event == "$page" }?["plan"] == "pro")
        }
    }

    @Test("Whoever logs in is tied to who it was, once; after the logout it is another one")
    func usersAreIdentified() async throws {
        try await Site.run { site in
            site.page("/", "data-id=device data-pages=off")
            try await site.open()
            try await site.browser.run(
                "(hapax.set({ plan: 'pro' }), hapax.track('a'), hapax.identify(17), hapax.identify('17'), hapax.track('b', { plan: 'free' }), hapax.identify(null), hapax.track('c'))"
            )
            try await site.flush()
            let rows = try await site.rows()
            let by = Dictionary(grouping: rows, by: \.event.event).mapValues { $0[0] }
            #expect(rows.count == 4)
            let anonymous = by["a"]?.event.distinct_id
            #expect(by["$identify"]?.event.distinct_id == "17" && by["$identify"]?["$anonymous_id"] == anonymous)
            #expect(by["b"]?.event.distinct_id == "17" && by["b"]?["plan"] == "free" && by["a"]?["plan"] == "pro")
            #expect(by["c"]?.event.distinct_id != anonymous && by["c"]?["$anonymous_id"] == nil)
        }
    }

    @Test("A key's pages send under a strict policy; others do not, and the server says why; a revoked key's events stay")
    func keysNameTheirPages() async throws {
        try await Site.run { site in
            let policy =
                "Content-Security-Policy: default-src 'none'; script-src \(site.origin); connect-src \(site.origin); img-src data:\r\n"
            let (key, id) = try await site.addKey(origins: [site.address])
            site.page("/", "data-id=device data-pages=off", key: key, headers: policy)
            try await site.open()
            try await site.browser.run(Self.track(0..<3))
            try await site.flush()
            Self.expectOnce(0..<3, try await site.rows())
            #expect(site.browser.complaints == [] && site.asked.allSatisfy { $0.hasPrefix("POST") }, "no preflight")
            try await site.revokeKey(id)
            try await site.browser.run(Self.track(3..<6))
            #expect(try await site.browser.run("hapax.flush()") == "false")
            site.page("/other", "data-id=none data-pages=off", key: try await site.addKey(origins: ["https://shop.example"]).key)
            try await site.open("/other")
            try await site.browser.run(Self.track(6..<7))
            #expect(try await site.browser.run("hapax.flush()") == "false")
            Self.expectOnce(0..<3, try await site.rows())
            let refusals = String(decoding: try await site.get("/v1/refusals", key: "demo-read").body, as: UTF8.self)
            #expect(refusals.contains("wrong_origin") && refusals.contains("hapax-server keys set"))
        }
    }

    @Test("What is tracked while an answer is awaited goes by itself after it")
    func trackedMeanwhileIsSent() async throws {
        try await Site.run { site in
            site.page("/", "data-id=device data-pages=off")
            try await site.open()
            try await site.browser.run(
                "(() => { const real = fetch; window.fetch = (...all) => new Promise((go) => { window.go = go }).then(() => { window.fetch = real; return real(...all) }) })()"
            )
            try await site.browser.run("(\(Self.track(0..<1)), 1)")
            try await site.browser.until("window.go")
            // Its own timer ends meanwhile, which is the only one of seconds.
            let watched =
                "const real = setTimeout; window.setTimeout = (work, delay) => real(() => { work(); window.ended ||= delay > 1000 }, delay)"
            try await site.browser.run("(() => { \(watched) })()")
            try await site.browser.run("(\(Self.track(1..<2)), 1)")
            try await site.browser.until("window.ended")
            try await site.browser.run("(window.go(), 1)")
            try await site.browser.until("Object.keys(localStorage).every((name) => !name.includes(' e.'))")
            Self.expectOnce(0..<2, try await site.rows())
        }
    }

    @Test("Answers that make no sense, and entries that something else has written, cost a request each and no event")
    func nonsenseIsNotRepeated() async throws {
        try await Site.run { site in
            site.page("/", "data-id=device data-pages=off")
            try await site.open()
            var asked = 0
            for (mark, results) in [#""""#, "[null]", #"{"length":0}"#].enumerated() {
                site.answer(
                    1_000,
                    .status(200, #"{"batch_id":"0198d3b4-0000-7000-8000-000000000001","received":1,"stored":1,"results":\#(results)}"#))
                try await site.browser.run(Self.track(mark..<mark + 1))
                // For so long nothing more may happen.
                try await site.browser.run("hapax.flush().then(() => new Promise((resolve) => setTimeout(resolve, 500)))")
                #expect(site.asked.count - asked <= 2, "\(results)")
                asked = site.asked.count
            }
            site.answer([])
            for (name, value) in [
                ("e.zzz", #"{"event_id":"other","event":"e"}"#), ("e.x", "{"),
                ("e.large", #"{"event_id":"large","event":"\#(String(repeating: "x", count: 70_000))"}"#),
                ("refused", "5"),
            ] {
                try await site.browser.run(
                    "localStorage.setItem(\(Browser.quoted("hapax \(site.origin)/v1/events?key=demo \(name)")), \(Browser.quoted(value)))")
            }
            try await site.flush()
            Self.expectOnce(0..<3, try await site.rows())
            #expect(try await site.browser.run("hapax.track('large', { text: 'x'.repeat(40000) })") == "null")
        }
    }

    @Test("Events that the server refuses have their end in the books, wherever the fault stands in them")
    func refusedEventsAreBalanced() async throws {
        try await Site.run { site in
            site.page("/", "data-id=device data-pages=off")
            try await site.open()
            try await site.browser.run(
                "(hapax.track('nul', { a: '\\u0000' }), hapax.track('wide', Object.fromEntries(Array.from({ length: 300 }, (_, i) => ['k' + i, i]))), hapax.track(''), hapax.track('n'.repeat(300)), 1)"
            )
            try await site.flush()
            let trust = try await site.trust()
            #expect(trust.contains(#""given":4,"stored":0,"duplicates":0,"refused":4,"discarded":0,"waiting":0,"missing":0"#), "\(trust)")
        }
    }

    @Test("What waits for one project goes to no other one")
    func projectsAreApart() async throws {
        try await Site.run { site in
            let key = try await site.addKey(origins: [site.address]).key
            site.page("/", "data-id=device data-pages=off", key: key)
            site.page("/demo", "data-id=device data-pages=off")
            try await site.open()
            site.answer(1_000, .status(503, Self.problem))
            try await site.browser.run(Self.track(0..<3))
            try await site.browser.run("hapax.flush()")
            site.answer([])
            try await site.open("/demo")
            try await site.browser.run(Self.track(3..<4))
            try await site.flush()
            // As the first page ended it has sent them with its own key, and kept them.
            #expect(try await site.rows().filter { $0.sequence != nil }.map { $0["mark"] } == ["3"])
            #expect(try await site.browser.run("Object.keys(localStorage).filter((name) => name.includes(' e.')).length") == "3")
        }
    }

    @Test("The script is this version's, and takes 3,072 bytes at most")
    func scriptIsSmall() async throws {
        try await Site.run { site in
            site.page()
            try await site.open()
            #expect(try await site.browser.run("hapax.version") == HapaxVersion.current)
            let plain = try await site.get("/hapax.js", key: "")
            #expect(plain["Content-Type"] == "text/javascript; charset=utf-8" && plain["Content-Encoding"] == nil)
            let packed = try await RawHTTP.get(port: site.server, path: "/hapax.js", headers: ["Accept-Encoding": "br, gzip"])
            #expect(packed["Content-Encoding"] == "gzip" && packed.body.count <= 3_072)
            #expect(try Gzip.decompress(packed.body, limit: 100_000) == plain.body)
            for answer in [plain, packed] {
                let tag = try #require(answer["ETag"])
                let again = try await RawHTTP.get(
                    port: site.server, path: "/hapax.js",
                    headers: ["If-None-Match": tag].merging(answer["Content-Encoding"].map { ["Accept-Encoding": $0] } ?? [:]) { $1 })
                #expect(again.status == 304 && again.body.isEmpty && again["Access-Control-Allow-Origin"] == "*")
            }
            #expect(plain["ETag"] != packed["ETag"])
        }
    }
}
