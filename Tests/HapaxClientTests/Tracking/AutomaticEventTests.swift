import HapaxModel
import Testing

@testable import HapaxClient

@Suite("AutomaticEvent (R42)", .timeLimit(.minutes(3)), .endsWhenItHangs)
struct AutomaticEventTests {
    @Test("a user interface's events have their names, and what it says about them (R42)")
    func interfaceEventsAreTracked() async throws {
        let test = try TestClient()
        test.client.track(.appViewScreen, properties: ["screen": "cart"])
        test.client.track(.appClick, properties: ["button": "pay"])
        #expect(await test.client.flush().stored == 2)
        #expect(test.transport.batches.flatMap(\.names) == ["$AppViewScreen", "$AppClick"])
        let properties = test.transport.batches.flatMap(\.scanned.events).map { String(decoding: $0.properties, as: UTF8.self) }
        #expect(properties == [#"{"screen":"cart"}"#, #"{"button":"pay"}"#])
    }

    @Test("the names are the five that are known (R42)")
    func namesAreKnown() {
        #expect(
            AutomaticEvent.allCases.map(\.rawValue) == ["$AppStart", "$AppEnd", "$AppStartPassively", "$AppViewScreen", "$AppClick"])
    }
}
