import HapaxModel
import HapaxTestKit
import Testing

@testable import HapaxClient

@Suite("AutomaticEvent (R42)", .endsWhenItHangs)
struct AutomaticEventTests {
    @Test(
        "a screen is an event when its name changes: which one, which before, and for how long that was seen; later events say where they happened (R42)"
    )
    func screensAreTracked() async throws {
        let test = try TestClient()
        test.client.trackScreen("cart")
        test.client.trackScreen("cart")
        test.client.track("$AppClick", properties: ["button": "pay"])
        test.client.handle(.didBecomeActive)
        test.clock.advance(by: .seconds(2))
        test.client.handle(.didEnterBackground)
        test.clock.advance(by: .seconds(60))
        test.client.handle(.didBecomeActive)
        test.clock.advance(by: .milliseconds(500))
        test.client.trackScreen("checkout", properties: ["step": 2])
        _ = await test.client.flush()
        let all = test.transport.batches.flatMap(\.scanned.events).map { event in
            String(decoding: event.name, as: UTF8.self) + String(decoding: event.properties, as: UTF8.self)
        }
        #expect(all.filter { $0.hasPrefix("$AppEnd") && $0.contains(#""$screen_duration":2.0,"#) }.count == 1)
        let events = all.filter { !$0.hasPrefix("$AppStart") && !$0.hasPrefix("$AppEnd") }
        #expect(
            events == [
                #"$AppViewScreen{"$screen_name":"cart"}"#, #"$AppClick{"$screen_name":"cart","button":"pay"}"#,
                #"$AppViewScreen{"$event_duration":2.5,"$previous_screen":"cart","$screen_name":"checkout","step":2}"#,
            ])
    }

    @Test("the names are the five that are known (R42)")
    func namesAreKnown() {
        #expect(
            AutomaticEvent.allCases.map(\.rawValue) == ["$AppStart", "$AppEnd", "$AppStartPassively", "$AppViewScreen", "$AppClick"])
    }
}
