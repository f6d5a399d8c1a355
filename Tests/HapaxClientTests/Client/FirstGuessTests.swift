#if os(Linux)
import Foundation
import Testing

/// What people write who do not know the client yet, and what the compiler says of it.
@Suite("First guesses", .endsWhenItHangs)
struct FirstGuessTests {
    /// A line of code, and a part of what the compiler says; nil for nothing.
    private static let guesses: [(line: String, error: String?)] = [
        // An id that is none would be another event at each try (C13).
        (#"try await client.trackDurably("paid", id: EventID(uuidString: "A-17"))"#, "must be unwrapped"),
        (#"client.track("paid", id: EventID(uuidString: order))"#, "must be unwrapped"),
        (#"client.track(NewEvent("paid", id: nil))"#, "'nil' is not compatible"),
        (#"tracking.track(Paid(), id: EventID(uuidString: order))"#, "must be unwrapped"),
        (#"client.startTimer("paid").end(id: EventID(uuidString: order))"#, "must be unwrapped"),
        (#"try await client.trackDurably("paid", id: EventID("A-17"))"#, "an order's number makes an id by EventID.derived(name:key:)"),
        (#"client.track("paid", id: EventID(UUID()))"#, "EventID(uuidString: uuid.uuidString)"),
        (#"client.track("paid", id: .made)"#, nil),
        (#"try await client.trackDurably("paid", id: .derived(name: "paid", key: order))"#, nil),
        (#"if let id = EventID(uuidString: order) { client.track("paid", id: id) }"#, nil),
        // PostHog.
        (#"EventClient.shared.setup(order)"#, "write EventClient.bootstrap("),
        (#"EventClient.setup(EventClient.Configuration(apiKey: "k", host: "https://example.org"))"#, "write EventClient.bootstrap("),
        (#"_ = EventClient.Configuration(apiKey: "k", host: "https://example.org")"#, "write EventClient.Configuration(server:"),
        (#"client.capture("paid")"#, "renamed to 'track'"),
        (#"client.capture("paid", properties: ["amount": 1, "plan": "pro"], userProperties: any)"#, "renamed to 'track'"),
        (#"client.screen("Cart", properties: ["items": 1])"#, "renamed to 'trackScreen'"),
        (#"client.identify("anna", userProperties: ["plan": "pro", "age": 7])"#, "there are no profiles"),
        (#"client.register(["plan": "pro"])"#, "write updateCommonProperties { $0["),
        (#"client.unregister("plan")"#, "= nil }"),
        (#"client.alias("anna")"#, "no report joins two ids"),
        (#"client.group(type: "company", key: "c-1")"#, "there are no groups"),
        (#"client.optOut()"#, "write try setConsent(.denied)"),
        (#"client.optIn()"#, "write try setConsent(.granted)"),
        (#"if client.isOptOut() {}"#, "write consent == .denied"),
        (#"let id: String = client.getAnonymousId()"#, "write identity.anonymousID"),
        (#"if client.isFeatureEnabled("flag") {}"#, "there are no feature flags"),
        (#"configuration.flushAt = 50"#, "write uploads.bulkSize"),
        (#"configuration.captureScreenViews = true"#, "screens are not captured"),
        // Segment.
        (#"_ = EventClient(server: "https://example.org", writeKey: "k")"#, "write URL(string:"),
        (#"_ = EventClient.Configuration(writeKey: "k")"#, "write EventClient.Configuration(server:"),
        (#"client.track(name: "paid", properties: ["amount": 1, "plan": "pro"])"#, "renamed to 'track(_:properties:)'"),
        (#"client.identify(userId: "anna", traits: ["plan": "pro"])"#, "renamed to 'identify(_:)'"),
        (#"client.screen(title: "Cart", category: "shop")"#, "renamed to 'trackScreen'"),
        (#"client.add(plugin: order)"#, "write configuration.enrichers"),
        (#"client.enabled = false"#, "write try setConsent(.granted), or (.denied)"),
        (#"_ = client.anonymousId"#, "renamed to 'identity.anonymousID'"),
        // Mixpanel.
        (#"EventClient.initialize(token: "k")"#, "write EventClient.bootstrap("),
        (#"EventClient.mainInstance().track("paid")"#, "renamed to 'shared'"),
        (#"client.track(event: "paid", properties: ["amount": 1])"#, "renamed to 'track(_:properties:)'"),
        (#"client.time(event: "checkout")"#, "write let timer = startTimer("),
        (#"client.registerSuperProperties(["plan": "pro"])"#, "write updateCommonProperties { $0["),
        (#"client.people.set(property: "plan", to: "pro")"#, "there are no profiles"),
        (#"client.createAlias("anna", distinctId: "b")"#, "no report joins two ids"),
        (#"client.optOutTracking()"#, "write try setConsent(.denied)"),
        (#"client.flushInterval = 30"#, "write updateUploads { $0.interval"),
        // Amplitude, Firebase, Sensors.
        (#"client.track(eventType: "paid", eventProperties: ["amount": 1])"#, "renamed to 'track(_:properties:)'"),
        (#"client.setUserId(userId: "anna")"#, "write identify(id)"),
        (#"client.logEvent("paid", parameters: ["amount": 1])"#, "write track(_:properties:)"),
        (#"client.setUserID("anna")"#, "renamed to 'identify'"),
        (#"client.setUserProperty("pro", forName: "plan")"#, "there are no profiles"),
        (#"client.setAnalyticsCollectionEnabled(false)"#, "write try setConsent(.granted), or (.denied)"),
        (#"client.track("paid", withProperties: ["amount": 1])"#, "renamed to 'track(_:properties:)'"),
        (#"client.login("anna")"#, "renamed to 'identify'"),
        (#"client.logout()"#, "write identify(nil)"),
        (#"client.trackTimerStart("checkout")"#, "write let timer = startTimer("),
        (#"client.trackTimerEnd("checkout")"#, "write timer.end()"),
        // A wrapper of one's own.
        (#"client.track("paid", properties: Properties(any))"#, "take Properties in place of [String: Any]"),
        (#"client.track("paid", properties: any)"#, "'[String : Any]'"),
        (#"client.track("paid", properties: Properties(["amount": 1]))"#, nil),
        (#"client.track("paid", properties: ["amount": 1, "plan": "pro", "at": Date(), "coupon": String?.none])"#, nil),
    ]

    @Test("a first guess compiles, or the compiler says what to write (C13, C32)")
    func compilerAnswersFirstGuesses() async throws {
        let head = """
            import Foundation
            import HapaxClient
            struct Paid: TypedEvent { let eventName = "paid", properties: Properties = [:] }
            func guesses(client: EventClient, tracking: any EventTracking, order: String, any: [String: Any]) async throws {
                var configuration = EventClient.Configuration(server: URL(string: "https://example.org")!, writeKey: "k")
            """
        let body = Self.guesses.map { "    do { \($0.line) }" }
        let errors = try await BuiltModules.errors(of: head + "\n" + body.joined(separator: "\n") + "\n}\n")
        for (index, guess) in Self.guesses.enumerated() {
            let said = errors[index + head.split(separator: "\n").count + 1] ?? []
            let isAnswered = guess.error.map { error in said.contains { $0.contains(error) } } ?? said.isEmpty
            #expect(isAnswered, "\(guess.line): \(said)")
        }
    }
}
#endif
