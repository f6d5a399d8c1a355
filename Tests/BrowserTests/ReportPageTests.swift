import Foundation
import HapaxModel
import TestSupport
import Testing

/// docs/reading.md: the page of reports (R60, R62, R63).
@Suite(
    "The page's report", .enabled(if: Browser.path != nil, "\(Browser.isMissing)"), .serialized, .endsWhenItHangs)
struct ReportPageTests {
    /// The third bar from the right is two days ago, whose day is closed at any time of today.
    private static let twoDaysAgo = "document.querySelector('#report-bars li:nth-last-child(3) button')"
    private static let tiles =
        "[...document.querySelectorAll('button.tile')].map((tile) => tile.innerText.replace(/\\s*\\n\\s*/g, ' ').trim()).join(' | ')"

    @Test("A day's tiles with their change, fourteen bars, names as text, all in the address, by mouse and by keyboard")
    func closedDayIsShown() async throws {
        try await ServerWithPage.run { server in
            let browser = server.browser
            var (events, number) = ([String](), 0)
            func add(_ count: Int, _ name: String, daysAgo: Int, _ properties: String = "{}") {
                for user in 0..<count {
                    number += 1
                    events.append(ServerWithPage.event(number, name, user: "u\(user)", properties: properties, daysAgo: daysAgo))
                }
            }
            for daysAgo in (2...9).reversed() {
                add(10 - daysAgo, "$AppStart", daysAgo: daysAgo)
                add(1, "$AppEnd", daysAgo: daysAgo, #"{"$event_duration":90.5}"#)
                // Not of the day that is in the picture.
                if daysAgo == 4 { add(1, "<img src=x onerror=alert(1)>\u{202E}", daysAgo: daysAgo) }
            }
            add(3, "order_paid", daysAgo: 2)
            for part in stride(from: 0, to: events.count, by: 50) {
                try await server.send(Array(events[part..<min(part + 50, events.count)]))
            }
            let closing = try await server.restarted(server.process, withOldEvents: true)
            try await server.send([ServerWithPage.event(900, "late", user: "late", daysAgo: 2), ServerWithPage.event(901)])
            let again = try await server.restarted(closing, withOldEvents: false)
            defer { again.kill() }
            try await browser.press("2")
            let label = "(\(Self.twoDaysAgo) || document.body).getAttribute('aria-label')"
            try await browser.until(
                "(/: events 12 \\(0 before\\), 1 late, closed$/.test(\(label)) || (report.abort && report.load(), false))")
            #expect(try await browser.run("document.querySelectorAll('#report-bars li').length") == "14")
            try await browser.run("\(Self.twoDaysAgo).click()")
            #expect(
                try await browser.run(Self.tiles)
                    == "Users 8 +14 % | Events 12 +50 % | Active users 8 +14 %"
                    + " | New users 1 ±0 % | Sessions 1 ±0 % | Mean use 1 m 31 s ±0 %"
            )
            try await browser.until("document.getElementById('week').innerText.trim() === 'Users of 7 days\\n8'")
            #expect(try await browser.text(of: "#period-state").hasSuffix("04:00: final"))
            #expect(try await browser.text(of: "#compared").contains("compared with"))
            #expect(try await browser.text(of: "#zone") == "UTC")
            #expect(try await browser.run("document.querySelectorAll('#report-bars .open, #report-bars .closing').length > 0") == "true")
            #expect(try await browser.run("location.hash").contains("day="))
            try await browser.screenshot("report")
            // The chosen figure and day are still there behind a link, and the focus is where it was.
            try await browser.run("document.querySelectorAll('.tile')[0].focus()")
            try await browser.press("Enter")
            #expect(try await browser.run("document.activeElement.innerText").hasPrefix("Users"))
            try await browser.run("\(Self.twoDaysAgo).focus()")
            try await browser.press("Enter")
            #expect(try await browser.run("document.activeElement.getAttribute('aria-label')").contains("users 8 (0 before), closed"))
            try await browser.reload()
            try await browser.until("document.querySelectorAll('#report-bars li').length === 14")
            #expect(try await browser.run("document.querySelector('.tile[aria-pressed=true]').innerText").hasPrefix("Users\n8"))
            try await browser.run(
                "(document.getElementById('days').value = '7', document.getElementById('days').dispatchEvent(new Event('change')))")
            #expect(try await browser.text(of: "#period").hasSuffix("a day on average"))
            #expect(try await browser.run(Self.tiles).hasPrefix("Users 5 "))
            // S25: 8 + 7 + … + 2 starts, and 3 orders in seven days.
            let names = try await browser.text(of: "#report-names")
            #expect(
                names.contains("a day on average") && names.contains("$AppStart\t5") && names.contains("order_paid\t0.4")
                    && names.contains("<img src=x onerror=alert(1)>\\u202e\t0.1"), "\(names)")
            // S21
            try await browser.run(
                "(document.getElementById('basis').value = 'all', document.getElementById('basis').dispatchEvent(new Event('change')))")
            try await browser.until("document.getElementById('period-state').innerText === 'all closed; late events can still change it'")
            #expect(try await browser.run("document.querySelectorAll('#report-table tbody tr').length") == "14")
            again.terminate()
            #expect(await again.waitUntilExit() == .exited(0))
            try await browser.run("report.load()")
            try await browser.until(
                "document.getElementById('report-notice').innerText.includes('cannot be reached. Below is what was known at')")
        }
    }

    @Test(
        "A click opens an event's property, two make a funnel, one tells who came back; all of it stands in the address, and nothing in it is a command",
        arguments: [(false, 1200), (true, 360)])
    func questionsAreThreeClicksAway(isDark: Bool, width: Int) async throws {
        try await ServerWithPage.run(width: width, height: 2_000) { server in
            let browser = server.browser
            try await browser.prefer(dark: isDark)
            let (pro, hostile) = (#"{"plan":"pro"}"#, #"{"plan":"<img src=x onerror=alert(1)>"}"#)
            try await server.send(
                (1...3).map { ServerWithPage.event($0, "$AppStart", user: "u\($0)") }
                    + (1...3).map { ServerWithPage.event(10 + $0, "viewed", user: "u\($0)") }
                    + (1...2).map { ServerWithPage.event(20 + $0, "order_paid", user: "u\($0)", properties: $0 == 1 ? pro : hostile) })
            try await browser.press("2")
            func click(_ event: String, _ what: String) async throws {
                try await browser.until(
                    "[...document.querySelectorAll('#report-names tr')].some((row) => row.innerText.startsWith('\(event)\t'))")
                try await browser.run(
                    "([...document.querySelectorAll('#report-names tr')].find((row) => row.innerText.startsWith('\(event)\t')).querySelector('\(what)').click(), 0)"
                )
            }
            // What could not be answered in time is asked again with the report's next refresh.
            func until(_ id: String, _ text: String) async throws {
                try await browser.until("document.getElementById('\(id)').innerText.replace(/\\s+/g, ' ').includes('\(text)')")
            }
            try await click("order_paid", ".link")
            try await until("values", "pro 1 1 all 2 2")
            #expect(try await browser.text(of: "#values-table").contains("<img src=x onerror=alert(1)>"))
            try await click("viewed", ".add")
            try await click("order_paid", ".add")
            try await until("funnel", "viewed 3 order_paid 2 66.7 % 66.7 %")
            try await browser.run("(document.querySelector('#return summary').click(), 0)")
            try await until("return", "3 66.7 %")
            let hash = try await browser.run("location.hash")
            #expect(hash.contains("event=order_paid&property=plan&step=viewed&step=order_paid"))
            try await browser.screenshot("analysis-\(width)")
            try await browser.reload()
            try await until("funnel", "viewed 3 order_paid 2 66.7 % 66.7 %")
            #expect(try await browser.run("document.getElementById('values-title').innerText") == "Event order_paid")
            try await browser.run("(document.querySelector('#funnel-steps button').click(), 0)")
            try await until("funnel", "with two there is a funnel")
            #expect(try await browser.run("document.documentElement.scrollWidth <= innerWidth") == "true")
        }
    }

    @Test(
        "A value filters bars, tiles, funnel and return, and Esc undoes it; hours, 28 and 90 days; the arrows move the period, x takes the one before away; a step that was misspelt is named"
    )
    func pageIsFilteredAndMoved() async throws {
        try await ServerWithPage.run(width: 360, height: 2_000) { server in
            let browser = server.browser
            try await browser.prefer(dark: true)
            let events = (0..<30).flatMap { day in
                (0...day % 5).map { user in
                    let plan = user == 0 ? #"{"plan":"pro","a:b":1}"# : #"{"plan":"free"}"#
                    return ServerWithPage.event(100 * day + user, "order_paid", user: "u\(user)", properties: plan, daysAgo: day)
                }
            }
            try await server.send(events)
            func bars(_ count: Int) async throws {
                try await browser.until("document.querySelectorAll('#report-bars li').length === \(count)")
            }
            func until(_ id: String, _ text: String) async throws {
                try await browser.until("document.getElementById('\(id)').innerText.replace(/\\s+/g, ' ').includes('\(text)')")
            }
            // What came late is in no figure, and its days have no bounds, before it is counted.
            try await browser.run("(location.hash = '#report', 0)")
            // Thirteen of them, but before four in the morning, when yesterday is still open.
            try await until("report-notice", "days hold only late events")
            let hash = "#report?basis=all&event=order_paid&property=plan&step=order_payd&step=order_paid"
            try await browser.run("(location.hash = '\(hash)', 0)")
            try await bars(14)
            try await until("values", "free")
            try await until("funnel", "Nobody did order_payd in these days. Did you mean order_paid?")
            try await browser.run(
                "([...document.querySelectorAll('#values-table .link')].find((one) => one.innerText === 'pro').click(), 0)")
            // One of the value each day, of one user.
            try await browser.until(
                "[...document.querySelectorAll('#report-bars button')].every((bar) => /: events 1[ ,]/.test(bar.title))")
            #expect(try await browser.run("location.hash").contains("where=plan%3A%22pro%22"))
            #expect(try await browser.run(Self.tiles).hasPrefix("Users 1 "))
            try await until("filter-value", "order_paid · plan:\"pro\" ×")
            try await browser.run("(document.querySelector('#funnel-open button').click(), 0)")
            try await until("funnel", "order_paid 1")
            try await browser.screenshot("filtered")
            try await browser.run("(document.activeElement.blur(), 0)")
            try await browser.press("Escape")
            try await browser.until("!location.hash.includes('where=') && document.getElementById('filter-value').hidden")
            try await browser.until("[...document.querySelectorAll('#report-bars button')].some((bar) => /: events 5[ ,]/.test(bar.title))")
            #expect(try await browser.run("document.querySelectorAll('#report-names .spark path').length") == "1")
            // Of all days there is one fourteen days before, if it was asked for.
            let line = "document.querySelector('#report-line path').getAttribute('d').length > 0"
            try await browser.run("report.choose({ basis: 'closed', until: '2026-01-20' })")
            try await browser.until("location.hash.includes('until=2026-01-20') && report.shownDays[1] === '2026-01-20'")
            try await browser.press("ArrowLeft")
            try await browser.until("report.shownDays[1] === '2026-01-06' && document.getElementById('until').value === '2026-01-06'")
            try await browser.press("ArrowRight")
            try await browser.until("report.shownDays[1] === '2026-01-20'")
            try await browser.run("report.choose({ basis: 'all', until: '', span: 'hours' })")
            try await bars(24)
            try await browser.until(line)
            try await browser.press("x")
            try await bars(24)
            try await browser.until("location.hash.includes('compare=no') && !(\(line))")
            try await browser.press("x")
            try await browser.until(line)
            let day = try await browser.run("report.last.day")
            try await browser.press("ArrowLeft")
            try await browser.until("report.last && report.last.day < '\(day)'")
            try await bars(24)
            for count in [90, 28] {
                try await browser.run("report.choose({ basis: 'closed', span: '\(count)' })")
                try await bars(count)
                #expect(try await browser.run("document.documentElement.scrollWidth <= innerWidth") == "true")
                try await browser.screenshot("days-\(count)")
            }
            try await browser.until("/^[0-9]/.test(document.getElementById('week-body').innerText)")
        }
    }

    @Test(
        "Imported history is said to be counted until it is (S23); then its days say that all came late, and one click counts it; no event at all is said, too"
    )
    func importedHistoryIsCountedWithOneClick() async throws {
        try await ServerWithPage.run { server in
            let browser = server.browser
            try await browser.press("2")
            try await browser.until("document.getElementById('report-empty').innerText.includes('No event in these days')")
            let notice = "document.getElementById('report-notice').innerText"
            try await browser.run(
                "(window.said = '', new MutationObserver(() => { window.said += \(notice); }).observe(document.getElementById('report-notice'), { childList: true }))"
            )
            // The next count may come just before the page asks.
            var number = 0
            while try await browser.run("window.said.includes('Counting what came late …')") == "false" {
                try await server.send((1...6).map { ServerWithPage.event(number + $0, user: "u\($0)", daysAgo: 3 + $0 % 2) })
                number += 6
                try await browser.run("report.load()")
            }
            // It asks again by itself.
            try await browser.until("\(notice).includes('2 days hold only late events')")
            try await browser.run("document.querySelector('#report-notice button').click()")
            try await browser.until("\(Self.tiles) === 'Users 3 ±0 % | Events \(number / 2) ±0 %' && location.hash.includes('basis=all')")
            #expect(try await browser.run("document.getElementById('report-notice').hidden") == "true")
        }
    }
}
