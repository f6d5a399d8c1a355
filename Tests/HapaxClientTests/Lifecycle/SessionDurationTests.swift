import HapaxModel
import HapaxTestKit
import Testing

@testable import HapaxClient

@Suite("How long a session lasted (R51)", .endsWhenItHangs)
struct SessionDurationTests {
    private func durations(_ test: TestClient) -> [String] {
        test.transport.batches.flatMap(\.scanned.events).filter { String(decoding: $0.name, as: UTF8.self) == "$AppEnd" }
            .map { String(decoding: $0.properties, as: UTF8.self) }
    }

    @Test("each end has the time of its own session: neither the one before nor the background between them (R51)")
    func everySessionIsMeasuredAlone() async throws {
        let test = try TestClient()
        test.client.attach(ScriptedApplication())
        for seconds in [2, 5] {
            test.client.handle(.didBecomeActive)
            test.clock.advance(by: .seconds(seconds))
            test.client.handle(.didEnterBackground)
            test.clock.advance(by: .seconds(100))
        }
        test.client.handle(.didBecomeActive)
        _ = await test.client.flush()
        #expect(durations(test) == [#"{"$event_duration":2.0}"#, #"{"$event_duration":5.0}"#])
    }

    @Test("a look at the notification centre ends no measurement (R45, R51)")
    func resigningIsForeground() async throws {
        let test = try TestClient()
        test.client.attach(ScriptedApplication())
        test.client.handle(.didBecomeActive)
        test.clock.advance(by: .seconds(2))
        test.client.handle(.willResignActive)
        test.clock.advance(by: .seconds(3))
        test.client.handle(.didBecomeActive)
        test.clock.advance(by: .seconds(4))
        test.client.handle(.willTerminate)
        _ = await test.client.flush()
        #expect(durations(test) == [#"{"$event_duration":9.0}"#])
    }
}
