import Foundation
import HapaxModel
import HapaxTestKit
import Logging
import TestSupport
import Testing

@testable import HapaxClient

@Suite("What every event says holds nothing that no event may hold (C10)", .endsWhenItHangs)
struct SharedPropertiesTests {
    @Test(
        "C10: a common property that no event may hold is refused where it is set, with one error that names it; the others are set, and no event suffers, in this run or the next",
        arguments: [
            .double(.nan), .string(String(repeating: "x", count: 33_000)), .string("a\0b"), .number("1e9999"),
            .object(["inner": .array([.double(.infinity)])]),
            .object(Dictionary(uniqueKeysWithValues: (0...256).map { ("\($0)", .null) })),
        ] as [PropertyValue], [true, false])
    func impossibleCommonPropertyIsRefused(value: PropertyValue, isApp: Bool) async throws {
        let (log, directory) = (RecordedLog(), TemporaryDirectory())
        func client() throws -> TestClient {
            try TestClient(directory: directory) {
                $0.isApp = isApp
                $0.logger = Logger(label: "test") { _ in log }
            }
        }
        let first = try client()
        first.client.updateCommonProperties { $0 = ["plan": "free"] }
        first.client.updateCommonProperties { $0.merge(["plan": "pro", "bad": value, "seats": 3]) }
        #expect(first.client.commonProperties == ["plan": "pro", "seats": 3])
        let errors = log.lines.filter { $0.hasPrefix("error") }
        #expect(errors.count == 1 && errors.allSatisfy { $0.contains("properties.bad") }, "\(errors)")
        // What holds stays where its new value is refused.
        first.client.updateCommonProperties { $0["plan"] = value }
        #expect(first.client.commonProperties["plan"] == "pro")
        first.client.track("event")
        #expect(await first.client.flush().deadLettered == 0)
        await first.client.shutdown(within: .zero)
        let second = try client()
        second.client.track("event")
        let report = await second.client.flush()
        #expect(report.stored == 1 && report.deadLettered == 0)
        #expect(second.client.commonProperties == (isApp ? ["plan": "pro", "seats": 3] : [:]))
    }

    @Test("C10: automatic properties and a screen's name that no event may hold are left out likewise")
    func whatIsThereIsLookedAt() async throws {
        let log = RecordedLog()
        let test = try TestClient {
            ($0.isApp, $0.automatic.properties) = (true, true)
            $0.automatic.appVersion = "1\0"
            $0.logger = Logger(label: "test") { _ in log }
        }
        test.client.trackScreen(String(repeating: "s", count: 33_000))
        test.client.track("event")
        #expect(await test.client.flush().deadLettered == 0)
        #expect(test.transport.batches.flatMap(\.names) == ["event"])
        let errors = log.lines.filter { $0.hasPrefix("error") }
        #expect(errors.count == 2 && errors[0].contains("properties.$app_version"), "\(errors)")
    }

    @Test("C10: properties that together are too large for any event are taken as far as they fit")
    func togetherTheyFit() async throws {
        let test = try TestClient { $0.logger = nil }
        let text = String(repeating: "x", count: 12_000)
        test.client.updateCommonProperties { $0 = ["a": text, "b": text, "c": text] as Properties }
        #expect(Set(test.client.commonProperties.byName.keys) == ["a", "b"])
        // Exchanged in one change, which is looked at as a whole.
        test.client.updateCommonProperties { $0 = ["b": 1, "c": text, "a": text] as Properties }
        #expect(Set(test.client.commonProperties.byName.keys) == ["a", "b", "c"])
        test.client.track("event")
        #expect(await test.client.flush().stored == 1)
    }
}
