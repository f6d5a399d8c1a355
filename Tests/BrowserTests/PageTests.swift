import Foundation
import HapaxModel
import TestSupport
import Testing

/// docs/reading.md: the page (R63), in a real browser. Each test ends without a script error and without anything that the content security policy
/// forbids.
@Suite("The page", .enabled(if: Browser.path != nil, "\(Browser.isMissing)"), .serialized, .endsWhenItHangs)
struct PageTests {
    private static let first = "#rows tbody tr.row"

    private static func rows(_ condition: String) -> String {
        "[...document.querySelectorAll('#rows tbody tr.row')].filter((row) => \(condition)).length"
    }

    @Test("The README's event shows as stored, sent again as duplicate, and a refused one with its reason")
    func readmeEventShows() async throws {
        let readme = try String(contentsOf: PackageLayout.root.appending(path: "README.md"), encoding: .utf8)
        let block = try #require(readme.components(separatedBy: "```\n").first { $0.hasPrefix("curl -s http://127.0.0.1:8080/v1/events") })
        try await ServerWithPage.run { server in
            #expect(try await server.browser.text(of: "#empty").contains("No event has arrived yet"))
            try await server.browser.screenshot("empty")
            let command = block.replacing("http://127.0.0.1:8080", with: server.address)
            #expect(try await server.shell(command).contains(#""stored":1"#))
            try await server.browser.until(Self.rows("row.classList.contains('stored') && row.innerText.includes('order_paid')") + " === 1")
            #expect(try await server.shell(command).contains(#""duplicates":1"#))
            try await server.browser.until(Self.rows("row.classList.contains('duplicate')") + " === 1")
            try await server.send([ServerWithPage.event(9, String(repeating: "n", count: 201))])
            try await server.browser.until(
                Self.rows("row.classList.contains('refused') && row.innerText.includes('name_too_long: event is 201 bytes, limit 200')")
                    + " === 1")
            for number in 10..<16 {
                try await server.send([
                    ServerWithPage.event(number, ["order_viewed", "order_paid", "cart_opened"][number % 3], user: "customer-\(number % 4)")
                ])
            }
            try await server.browser.until(Self.rows("true") + " === 9")
            try await server.browser.until("document.querySelectorAll('#bars rect').length > 1")
            try await server.browser.screenshot("page")
            // What was there before shows as well.
            try await server.browser.reload()
            try await server.browser.until(
                Self.rows("row.classList.contains('stored')") + " === 7 && " + Self.rows("row.classList.contains('refused')") + " === 1")
        }
    }

    @Test("An event shows within a second of its answer, on one of three tries: a machine may be busy once")
    func eventShowsWithinASecond() async throws {
        try await ServerWithPage.run { server in
            try await server.browser.run(
                """
                (window.seen = {}, new MutationObserver(() => {
                  for (const row of document.querySelectorAll('#rows tbody tr.row')) window.seen[row.row.id] ??= Date.now() - new Date(row.row.at);
                }).observe(document.querySelector('#rows tbody'), { childList: true }))
                """)
            var delays: [Int] = []
            for number in 1...3 {
                try await server.send([ServerWithPage.event(number)])
                let seen = "window.seen['\(ServerWithPage.id(number))']"
                try await server.browser.until("\(seen) !== undefined")
                delays.append(Int(try await server.browser.run(seen)) ?? .max)
            }
            #expect(delays.contains { $0 <= 1_000 }, "\(delays) ms")
        }
    }

    @Test("A hostile event shows as text, in its row, in full and in find; what Copy as curl gives is the same event: duplicate")
    func hostileEventIsText() async throws {
        try await ServerWithPage.run { server in
            let name =
                #"<img src=x onerror="window.hit=1">'; echo $HOME; '"# + "\u{202E}\u{7}\u{1B}[31m" + String(repeating: "ä", count: 60)
            let user = "</bdi><script>window.hit=1</script>\u{2066}'\"`$(id)"
            let properties =
                #"{"__proto__":{"x":"it's \u001b[2J \u202e <b>"},"constructor":1,"big":9007199254740993,"tail":1.10,"a\nb":"\\ ' \" $x","é":"e\u0301"}"#
            #expect(try await server.send([ServerWithPage.event(1, name, user: user, properties: properties)]).status == 200)
            try await server.browser.until(Self.rows("true") + " === 1")
            let row = try await server.browser.text(of: Self.first)
            #expect(row.contains("<img src=x onerror=") && row.contains(#"\u202e\u0007\u001b[31m"#) && row.contains("</bdi><script>"))
            // Keep what would be copied where the test can read it.
            try await server.browser.run(
                "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } })")
            try await server.browser.run("document.querySelector('\(Self.first)').click()")
            #expect(try await server.browser.text(of: "tr.detail").contains(#""__proto__": {"#))
            try await server.browser.run("document.querySelector('tr.detail button.copy').click()")
            let command = try await server.browser.run("window.copied")
            #expect(!command.unicodeScalars.contains { $0.value == 0x202E || $0.value < 0x20 })
            let answer = try await server.shell(command)
            #expect(answer.contains(#""duplicates":1"#), "\(command)\n\(answer)")
            try await server.browser.run("location.hash = '#find?user=' + encodeURIComponent(\(Browser.quoted(user)))")
            try await server.browser.until("document.querySelectorAll('#found tr.row').length === 1")
            #expect(try await server.browser.run("document.querySelectorAll('main img, main script').length") == "0")
            #expect(try await server.browser.run("window.hit") == "undefined")
            #expect(try await server.browser.run("({}).x") == "undefined")
            // A sequence that no number of JavaScript holds.
            try await server.send([ServerWithPage.event(2).dropLast() + #","sequence":9223372036854775807}"#])
            try await server.browser.run("location.hash = '#find?id=\(ServerWithPage.id(2))'")
            try await server.browser.until("document.getElementById('found').innerText.includes('9223372036854775807')")
        }
    }

    @Test("A filter by name and by outcome keeps rows that match, stands in the address, and says how many did not")
    func filtersKeepWhatMatches() async throws {
        try await ServerWithPage.run { server in
            try await server.browser.run("document.getElementById('filter').dispatchEvent(new Event('focus'))")
            // S6
            let asked = "performance.getEntriesByType('resource').find((e) => e.name.includes('/v1/names'))"
            try await server.browser.until("\(asked) && Date.now() - new Date(new URL(\(asked).name).searchParams.get('from')) < 90000000")
            try await server.browser.type("order_paid", into: "#filter")
            try await server.browser.until("location.hash === '#live?event=order_paid'")
            try await server.browser.until("document.getElementById('empty').innerText.includes('Nothing matches the filter')")
            try await server.send([ServerWithPage.event(1, "order_viewed"), ServerWithPage.event(2, "order_viewed")])
            try await server.browser.until("document.getElementById('empty').innerText.includes('2 other events came')")
            try await server.send([ServerWithPage.event(3), ServerWithPage.event(4, "order_viewed")])
            try await server.browser.until(Self.rows("true") + " === 1")
            try await server.browser.run(
                "(document.getElementById('outcome').value = 'duplicate', document.getElementById('outcome').dispatchEvent(new Event('change')))"
            )
            try await server.browser.until(
                "location.hash === '#live?event=order_paid&outcome=duplicate' && " + Self.rows("true") + " === 0")
            try await server.browser.until("document.getElementById('connection').textContent === 'connected'")
            try await server.send([ServerWithPage.event(3)])
            try await server.browser.until(Self.rows("row.classList.contains('duplicate')") + " === 1")
            try await server.browser.reload()
            try await server.browser.until(
                "document.getElementById('filter').value === 'order_paid' && document.getElementById('outcome').value === 'duplicate'")
        }
    }

    @Test("Pausing goes on counting, and Resume shows what came")
    func pauseCounts() async throws {
        try await ServerWithPage.run { server in
            try await server.browser.run("document.getElementById('pause').click()")
            try await server.send((1...7).map { ServerWithPage.event($0) })
            try await server.browser.until(
                "document.getElementById('notice').innerText === 'paused, 7 new' && " + Self.rows("true") + " === 0")
            try await server.browser.run("document.getElementById('pause').click()")
            try await server.browser.until(Self.rows("true") + " === 7")
        }
    }

    @Test("By keyboard: rows are walked and opened, the focused one stays, shortcuts act, can be switched off, and leave fields alone")
    func keyboardWalk() async throws {
        try await ServerWithPage.run { server in
            let browser = server.browser
            try await server.send([ServerWithPage.event(1, "one"), ServerWithPage.event(2, "two")])
            try await browser.until(Self.rows("true") + " === 2")
            try await browser.press("/")
            #expect(try await browser.run("document.activeElement.id") == "filter")
            // A key belongs to the field that has the focus.
            try await browser.press("p")
            #expect(
                try await browser.run("document.getElementById('filter').value + document.getElementById('pause').textContent") == "pPause")
            try await browser.run("document.getElementById('filter').value = ''")
            for _ in 0..<12 where try await browser.run("document.activeElement.classList.contains('row')") == "false" {
                try await browser.press("Tab")
            }
            #expect(try await browser.run("document.activeElement.row.name") == "two")
            try await browser.press("ArrowDown")
            #expect(try await browser.run("document.activeElement.row.name") == "one")
            try await browser.press("Enter")
            #expect(try await browser.text(of: "tr.detail").contains(ServerWithPage.id(1)))
            // What comes now waits: the row that is read stays where it is.
            let place = "document.activeElement.getBoundingClientRect().top"
            let before = try await browser.run(place)
            try await server.send([ServerWithPage.event(3, "three")])
            try await browser.until("document.getElementById('show-new').innerText === 'Show 1 new'")
            #expect(try await browser.run(place) == before)
            try await browser.press("Enter")
            #expect(try await browser.run("document.querySelectorAll('tr.detail').length") == "0")
            try await browser.press("Escape")
            try await browser.until(Self.rows("true") + " === 3")
            try await browser.press("p")
            #expect(try await browser.text(of: "#pause") == "Resume")
            try await browser.press("p")
            try await browser.run("(document.getElementById('shortcuts').click(), document.getElementById('shortcuts').blur())")
            try await browser.press("p")
            #expect(try await browser.text(of: "#pause") == "Pause")
            try await browser.run("(document.getElementById('shortcuts').click(), document.getElementById('shortcuts').blur())")
            try await browser.press("3")
            try await browser.until("!document.getElementById('find').hidden")
        }
    }

    @Test(
        "Find: an id with its receipt and event, a refused one, an unknown one; a user's events as they happened, page by page (S22), a UUID's as well (S5)"
    )
    func findAnswers() async throws {
        try await ServerWithPage.run { server in
            let browser = server.browser
            let user = "01980000-0000-7000-8000-ABCDEF000000"
            for first in [1, 801] {
                try await server.send((first..<first + 600).map { ServerWithPage.event($0, user: "u<1>", daysAgo: 1 + $0 * 7 % 29) })
            }
            try await server.send([ServerWithPage.event(700, ""), ServerWithPage.event(701, user: user)])
            try await browser.run("document.getElementById('to-find').click()")
            try await browser.type(ServerWithPage.id(7).uppercased(), into: "#wanted")
            try await browser.until("document.getElementById('found').innerText.includes('Stored once')")
            #expect(try await browser.text(of: "#found").contains(#""event": "order_paid""#))
            try await browser.screenshot("find")
            try await browser.type(ServerWithPage.id(700), into: "#wanted")
            try await browser.until("document.getElementById('found').innerText.includes('invalid_event')")
            try await browser.type(ServerWithPage.id(9_999), into: "#wanted")
            try await browser.until("document.getElementById('found').innerText.includes('Nothing is known of it')")
            try await browser.type(user, into: "#wanted")
            try await browser.until("document.querySelectorAll('#found tr.row').length === 1 && location.hash.includes('\(user)')")
            #expect(try await browser.text(of: "#found").contains("Nothing is known") == false)
            try await browser.type("u<1>", into: "#wanted")
            try await browser.until("document.querySelectorAll('#found tr.row').length === 1000")
            let isInOrder = """
                [...document.querySelectorAll('#found tr.row')].map((row) => row.querySelector('time').dateTime)
                  .every((time, i, all) => i === 0 || time <= all[i - 1])
                """
            #expect(try await browser.run(isInOrder) == "true")
            try await browser.run("document.querySelector('#found .more button').click()")
            try await browser.until("document.querySelectorAll('#found tr.row').length === 1200 && !document.querySelector('#found .more')")
            #expect(try await browser.run(isInOrder) == "true")
            try await browser.type("nobody", into: "#wanted")
            try await browser.until("document.getElementById('found').innerText.includes('No event of this user')")
            try await browser.type("u<", into: "#wanted")
            try await browser.until("document.querySelector('#found .users button')?.textContent === 'u<1>'")
            try await browser.run("document.querySelector('#found .users button').click()")
            try await browser.until("document.querySelectorAll('#found tr.row').length === 1000 && location.hash === '#find?user=u%3C1%3E'")
        }
    }

    @Test("Above twenty a second it shows the newest of each name, and says of how many")
    func manyEventsAreThinned() async throws {
        try await ServerWithPage.run { server in
            for round in 0..<4 {
                try await server.send((1...200).map { ServerWithPage.event(round * 200 + $0, $0 % 2 == 0 ? "even" : "odd") })
            }
            try await server.browser.until(#"/showing \d+ of \d\d+\/s/.test(document.getElementById('rate').textContent)"#)
            try await server.browser.screenshot("busy")
            let height = Int(try await server.browser.run(Self.rows("true"))) ?? .max
            #expect(height <= 200)
        }
    }

    @Test(
        "A key is asked for, refused with the reason, kept in this tab, and forgotten; the admin key chooses a project and sees the store")
    func keysAreAskedFor() async throws {
        try await ServerWithPage.run { server in
            let browser = server.browser
            #expect(try await browser.run("location.hash") == "#live")
            #expect(try await browser.run("document.getElementById('to-store').checkVisibility()") == "false")
            try await browser.run("document.getElementById('forget').click()")
            try await browser.until("!document.getElementById('key-form').hidden && document.getElementById('live').hidden")
            #expect(try await browser.text(of: "#key-form").contains("HAPAX_READ_KEYS=shop=KEY"), "S26")
            try await browser.screenshot("key")
            try await browser.type("no-such-key", into: "#key")
            try await browser.until("document.getElementById('key-error').innerText.startsWith('unknown_key')")
            try await browser.type("demo", into: "#key")
            try await browser.until("document.getElementById('key-error').innerText.startsWith('wrong_key_kind')")
            try await browser.type(ServerWithPage.adminKey, into: "#key")
            try await browser.until(
                "document.getElementById('connection').textContent === 'connected' && document.getElementById('project').value === 'demo'")
            // A16: the page knows what its key is for, and is refused nothing.
            #expect(try await browser.run("performance.getEntriesByType('resource').some((e) => e.responseStatus === 400)") == "false")
            // One try above had a key that nobody has.
            let unknown = "document.getElementById('unknown-keys')"
            #expect(try await browser.run("\(unknown).hidden") == "true")
            _ = try await RawHTTP.post(port: server.port, headers: ["Authorization": "Bearer nobody"], body: [])
            try await browser.until("\(unknown).innerText.startsWith('1 request with an unknown key')")
            // S28
            try await browser.run("\(unknown).querySelector('button').click()")
            #expect(try await browser.run("\(unknown).hidden") == "true")
            _ = try await RawHTTP.post(port: server.port, headers: ["Authorization": "Bearer nobody"], body: [])
            try await browser.until("!\(unknown).hidden && \(unknown).innerText.startsWith('2 requests')")
            try await server.send([ServerWithPage.event(1), ServerWithPage.event(2), ServerWithPage.event(3, "")])
            try await browser.run("document.getElementById('to-store').click()")
            try await browser.until("document.getElementById('store-state').innerText === 'ready'")
            try await browser.until(
                "document.querySelectorAll('#store-refusals tbody tr').length > 0 || (storage.load(), false)")
            let text = try await browser.text(of: "#store-body")
            #expect(
                text.contains("Rows\n2") && text.contains("SQLite 3.") && text.contains("invalid_event") && text.contains("unknown key\n2")
                    && text.contains("are kept\nfor ever"), "\(text)")
            #expect(try await browser.text(of: "#store-keys").contains("(settings)\tadmin\tall\tstatic"))
            #expect(try await browser.run(Self.nameless) == "")
            #expect(try await browser.run(Self.faint) == "")
            try await browser.screenshot("store")
        }
    }

    @Test(
        "Trust says that every event is accounted for, or what is missing; a line on top of each section says so, too (I12)",
        arguments: [(false, 1200), (true, 360)])
    func missingEventsAreTold(isDark: Bool, width: Int) async throws {
        try await ServerWithPage.run(width: width) { server in
            let browser = server.browser
            try await browser.prefer(dark: isDark)
            func send(_ numbers: ClosedRange<Int64>, name: String = "paid") async throws {
                let id = { (number: Int64) in EventID(uuidString: "01980000-0000-7000-8000-\(100_000_000_000 + number)") }
                let install = try #require(EventID(uuidString: "01980000-0000-7000-8000-0000000000aa"))
                let events = try numbers.map {
                    Event(id: try #require(id($0)), name: name, time: 0, distinctID: "u", sequence: $0, properties: [:]).encoded().bytes
                }
                let envelope = EventBatch.Envelope(
                    installID: install, reportVersion: 1, created: numbers.upperBound, acknowledged: numbers.lowerBound - 1)
                let answer = try await RawHTTP.post(
                    port: server.port, headers: ["Authorization": "Bearer demo", "Content-Type": "application/json"],
                    body: EventBatch(envelope: envelope, events: events).encoded())
                #expect(answer.status == 200)
            }
            let verdict = "document.getElementById('trust-verdict').innerText"
            try await browser.run("document.getElementById('to-trust').click()")
            try await browser.until("\(verdict) === 'No client has reported yet.'")
            try await send(1...4)
            try await send(5...5, name: String(repeating: "n", count: 300))
            try await browser.until("\(verdict) === 'Every event accounted for.' || (trust.load(), false)")
            #expect(try await browser.text(of: "#trust-equation").contains("Stored\t4"))
            // Nothing is missing, and nothing is red (A16).
            #expect(try await browser.run("document.querySelector('#trust-equation tr:last-child').className.includes('alarm')") == "false")
            #expect(try await browser.run("document.getElementById('trust-losses').checkVisibility()") == "false")
            try await send(9...10)
            try await browser.until("\(verdict) === '3 events missing.' || (trust.load(), false)")
            let batch = #"{"writeKey":"demo","batch":[{"event":"e","userId":"u","messageId":"m"}]}"#
            _ = try await RawHTTP.post(
                port: server.port, path: "/v1/batch", headers: ["User-Agent": "shop<b>/3.1 (linux)"], body: Array(batch.utf8))
            let senders = "document.getElementById('trust-senders').innerText"
            try await browser.until("/shop<b> 3.1\\tsegment\\t1\\t1\\t0\\t0/.test(\(senders)) || (trust.load(), false)")
            let text = try await browser.text(of: "#trust-body")
            #expect(text.contains("6–8") && text.contains("0000000000aa") && text.contains("name_too_long"), "\(text)")
            #expect(try await browser.run(Self.nameless) == "")
            #expect(try await browser.run(Self.faint) == "")
            #expect(try await browser.run("document.documentElement.scrollWidth") == "\(width)")
            try await browser.screenshot("trust-\(width)")
            try await browser.run("document.getElementById('to-live').click()")
            try await browser.until(
                "document.getElementById('missing').innerText.startsWith('3 events missing: install 01980000-0000-7000-8000-0000000000aa, numbers 6–8.')"
            )
            #expect(try await browser.run("document.documentElement.scrollWidth") == "\(width)")
            try await browser.screenshot("missing-\(width)")
        }
    }

    @Test("A server that is gone is told, with what was there, and found again when it is back")
    func disconnectionIsTold() async throws {
        try await ServerWithPage.run { server in
            try await server.send([ServerWithPage.event(1)])
            try await server.browser.until(Self.rows("true") + " === 1")
            server.process.terminate()
            #expect(await server.process.waitUntilExit() == .exited(0))
            try await server.browser.until("document.getElementById('notice').innerText.startsWith('Not connected')")
            #expect(try await server.browser.run(Self.rows("true")) == "1")
            let again = try await server.restarted()
            try await server.browser.until("document.getElementById('connection').textContent === 'connected'")
            try await server.send([ServerWithPage.event(2)])
            try await server.browser.until(Self.rows("true") + " === 2")
            again.kill()
        }
    }

    @Test(
        "Both themes, from a phone to 4K: nothing overflows, every control has a name, and every text its contrast (WCAG 2.2, 1.4.3)",
        arguments: [false, true], [360, 1200, 3840])
    func looksRight(isDark: Bool, width: Int) async throws {
        try await ServerWithPage.run(width: width, height: 800) { server in
            let browser = server.browser
            try await browser.prefer(dark: isDark)
            try await server.send([
                ServerWithPage.event(1, String(repeating: "long_name_", count: 20), user: String(repeating: "u", count: 200))
            ])
            try await server.send([
                ServerWithPage.event(1, String(repeating: "long_name_", count: 20), user: String(repeating: "u", count: 200)),
                ServerWithPage.event(3, ""),
            ])
            try await browser.until(Self.rows("true") + " === 3")
            try await browser.run("document.querySelector('tr.row.stored').click()")
            for section in ["live", "report", "find"] {
                try await browser.run("location.hash = '#\(section)\(section == "find" ? "?id=\(ServerWithPage.id(1))" : "")'")
                try await browser.until("!document.getElementById('\(section)').hidden")
                if section == "report" { try await browser.until("!document.getElementById('report-body').hidden") }
                #expect(try await browser.run("document.documentElement.scrollWidth") == "\(width)", "\(section)")
                #expect(try await browser.run(Self.nameless) == "", "\(section)")
                #expect(try await browser.run(Self.faint) == "", "\(section)")
                if section != "find" { try await browser.screenshot("\(section)-\(width)-\(isDark ? "dark" : "light")") }
                if section == "live" { try await browser.until(Self.rows("true") + " > 0") }
            }
        }
    }

    @Test("Behind a proxy that has it under a path, the page shows, asks and copies; nothing is asked outside of the path (S13)")
    func pageLivesUnderAPath() async throws {
        try await ServerWithPage.run { server in
            let proxy = try PathProxy("/hapax", to: server.port)
            try await server.browser.open("http://127.0.0.1:\(proxy.port)/hapax/#key=demo-read")
            try await server.browser.until("document.getElementById('connection').textContent === 'connected'")
            #expect(try await server.browser.text(of: "#empty").contains("HAPAX_SERVER=http://127.0.0.1:\(proxy.port)/hapax HAPAX_KEY="))
            let first = try await server.browser.text(of: "#empty pre")
            #expect(try await server.shell(first).contains(#""stored":1"#), "\(first)")
            try await server.browser.until(Self.rows("row.classList.contains('stored')") + " === 1")
            let again = try await server.browser.run("curlOfEvent(document.querySelector('\(Self.first)').row.event)")
            #expect(again.contains("/hapax/v1/events"))
            #expect(try await server.shell(again).contains(#""duplicates":1"#), "\(again)")
            for section in ["report", "find?user=customer-1"] { try await server.browser.run("location.hash = '#\(section)'") }
            try await server.browser.until("document.querySelectorAll('#found tr.row').length === 1")
            #expect(proxy.strays == [])
        }
    }

    @Test("The browser obeys the page's policy: nothing inline, nothing from elsewhere, no frame, no form, no base (T4)")
    func policyIsObeyed() async throws {
        try await ServerWithPage.run(isForbidden: true) { server in
            // The same server under another name is another origin.
            let elsewhere = "http://localhost:\(server.port)"
            try await server.browser.run(
                "(window.violated = [], document.addEventListener('securitypolicyviolation', (e) => window.violated.push(e.effectiveDirective)))"
            )
            for (name, attributes, directive) in [
                ("script", "textContent: 'window.hit = 1'", "script-src-elem"),
                ("script", "src: '\(elsewhere)/page.js'", "script-src-elem"),
                ("style", "textContent: 'body { color: red }'", "style-src-elem"), ("img", "src: '\(elsewhere)/x.png'", "img-src"),
                ("iframe", "src: location.href", "frame-src"), ("base", "href: '\(elsewhere)/'", "base-uri"),
            ] {
                try await server.browser.run("document.body.append(Object.assign(document.createElement('\(name)'), { \(attributes) }))")
                try await server.browser.until("window.violated.pop() === '\(directive)'", seconds: 20)
            }
            for (action, directive) in [
                ("fetch('\(elsewhere)/v1/events').catch(() => 0)", "connect-src"),
                ("document.body.setAttribute('style', 'color: red')", "style-src-attr"), ("setTimeout('window.hit = 1')", "script-src"),
                ("document.body.appendChild(document.createElement('form')).submit()", "form-action"),
            ] {
                try await server.browser.run(action)
                try await server.browser.until("window.violated.pop() === '\(directive)'", seconds: 20)
            }
            #expect(try await server.browser.run("window.hit") == "undefined")
            for path in ["/", "/page.js", "/page.css"] {
                let policy = try await RawHTTP.get(port: server.port, path: path)["Content-Security-Policy"]
                #expect(policy?.contains("default-src 'none'") == true && policy?.contains("frame-ancestors 'none'") == true, "\(path)")
            }
        }
    }

    /// Controls without a name that a screen reader could say.
    private static let nameless = """
        [...document.querySelectorAll('button, input, select, a, [tabindex]')].filter((e) => e.checkVisibility())
          .filter((e) => !(e.innerText || e.getAttribute('aria-label') || [...(e.labels || [])].map((l) => l.innerText || l.textContent).join('')).trim())
          .map((e) => e.outerHTML.slice(0, 100)).join('\\n')
        """

    /// Texts whose contrast with what is behind them is below 4.5.
    private static let faint = """
        (() => {
          const numbers = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
          const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
          const ground = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
          for (const a of document.getAnimations()) a.finish();
          return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
            .filter((e) => { const [a, b] = [light(numbers(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05) < 4.5; })
            .map((e) => e.outerHTML.slice(0, 100)).join('\\n');
        })()
        """

    @Test("The page is at most 60 kB in all, compressed, and asks for nothing from elsewhere")
    func pageIsSmall() async throws {
        try await ServerWithPage.run { server in
            var bytes = 0
            for path in ["/", "/page.js", "/page.css"] {
                bytes += try Gzip.compress(try await RawHTTP.get(port: server.port, path: path).body, level: 9).count
            }
            #expect(bytes <= 60_000)
            let elsewhere =
                "performance.getEntriesByType('resource').filter((e) => !e.name.startsWith(location.origin)).map((e) => e.name).join()"
            #expect(try await server.browser.run(elsewhere) == "")
        }
    }
}
