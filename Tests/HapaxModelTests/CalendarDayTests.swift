import Foundation
import Testing

@testable import HapaxModel

@Suite(.endsWhenItHangs)
struct CalendarDayTests {
    @Test("days are those of Foundation's calendar, there and back, for all of 1970 to 9999")
    func daysAreThoseOfTheCalendar() throws {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = .gmt
        for days: Int32 in Array(stride(from: 0, through: 2_932_896, by: 997)) + [10_956, 10_957, 11_016, 47_481, 47_482, 2_932_896] {
            let day = try #require(CalendarDay(daysSince1970: days))
            let parts = calendar.dateComponents([.year, .month, .day], from: Date(timeIntervalSince1970: Double(days) * 86_400))
            #expect([day.components.year, day.components.month, day.components.day] == [parts.year, parts.month, parts.day])
            #expect(CalendarDay(day.description) == day)
        }
    }

    @Test("what is no day of the calendar is refused")
    func otherTextIsRefused() {
        for text in [
            "2026-02-29", "2100-02-29", "2026-13-01", "2026-00-01", "2026-04-31", "2026-1-1", "1969-12-31", "+026-01-01", "2026-11-24T", "",
            "10000-01-01", "2026/11/24",
        ] {
            #expect(CalendarDay(text) == nil, "\(text)")
        }
        #expect(CalendarDay("2028-02-29")?.daysSince1970 == 21_243)
        #expect(CalendarDay(daysSince1970: -1) == nil && CalendarDay(daysSince1970: 2_932_897) == nil)
    }

    @Test("dated derived ids are the same on every machine and in every version: vectors made by another program")
    func datedDerivedIDsArePinned() throws {
        for line in String(decoding: try Golden.bytes("derived-ids.txt"), as: UTF8.self).split(separator: "\n") {
            let parts = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
            let day = CalendarDay(parts[3])
            let id = day.map { EventID.derived(name: parts[1], key: parts[2], day: $0) } ?? .derived(name: parts[1], key: parts[2])
            #expect(id.description == parts[0] && id.isDerived)
            // Dated only from 2024 to 2099; an undated one never looks like a dated one.
            let days = day?.daysSince1970 ?? 0
            #expect(id.bucket == ((19_723...47_481).contains(days) ? days : -1 - Int32(id.low % 16)), "\(line)")
        }
    }
}
