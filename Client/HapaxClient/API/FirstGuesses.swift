import Foundation
import HapaxModel

// What people write first who know another SDK: the compiler says what to write here. Nothing of it exists; README's table says more.

/// Takes any arguments, so that whatever a guessed call is given the compiler speaks of its name.
@_documentation(visibility: internal)
@dynamicCallable
@dynamicMemberLookup
public struct FirstGuess: Sendable {
    public subscript(dynamicMember name: String) -> FirstGuess { self }
    @discardableResult
    public func dynamicallyCall(withKeywordArguments arguments: KeyValuePairs<String, Any?>) -> FirstGuess { self }
    public func dynamicallyCall<Result>(withKeywordArguments arguments: KeyValuePairs<String, Any?>) -> Result {
        preconditionFailure("the compiler lets nobody call it")
    }
}

// MARK: - Beginning

extension EventClient {
    @available(*, unavailable, message: "write EventClient.bootstrap(EventClient.Configuration(server: …, writeKey: …))")
    public static var setup: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write EventClient.bootstrap(EventClient.Configuration(server: …, writeKey: …))")
    public var setup: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write EventClient.bootstrap(EventClient.Configuration(server: …, writeKey: …))")
    public static var configure: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write EventClient.bootstrap(EventClient.Configuration(server: …, writeKey: …))")
    public static var initialize: FirstGuess { FirstGuess() }
    @available(*, unavailable, renamed: "shared")
    public static var mainInstance: FirstGuess { FirstGuess() }
    @available(*, unavailable, renamed: "shared")
    public static var instance: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "the server is a URL: write URL(string: \"https://…\")!")
    public convenience init(server: String, writeKey: String) { self.init(nil) }
}

extension EventClient.Configuration {
    @available(*, unavailable, message: "the server is a URL: write URL(string: \"https://…\")!")
    public init(server: String, writeKey: String) { self.init(server: "", writeKey: "", queueDirectory: "") }
    @available(*, unavailable, message: "write EventClient.Configuration(server: URL(string: \"https://…\")!, writeKey: …)")
    public init(writeKey: String) { self.init(server: "", writeKey: "", queueDirectory: "") }
    @available(*, unavailable, message: "write EventClient.Configuration(server: URL(string: \"https://…\")!, writeKey: …)")
    public init(apiKey: String, host: String = "") { self.init(server: "", writeKey: "", queueDirectory: "") }
    @available(*, unavailable, message: "write uploads.bulkSize = 50")
    public var flushAt: Int {
        get { 0 }
        set {}
    }
    @available(*, unavailable, message: "write uploads.interval = .seconds(30)")
    public var flushInterval: Double {
        get { 0 }
        set {}
    }
    @available(*, unavailable, message: "write consent = .denied")
    public var optOut: Bool {
        get { false }
        set {}
    }
    @available(*, unavailable, message: "write enrichers = [{ draft in … }]: an enricher changes a draft, or drops it by nil")
    public var beforeSend: Any {
        get { () }
        set {}
    }
    @available(*, unavailable, message: "EventClient.attach() tracks $AppStart and $AppEnd; nothing is to be set")
    public var captureApplicationLifecycleEvents: Bool {
        get { false }
        set {}
    }
    @available(*, unavailable, message: "EventClient.attach() tracks $AppStart and $AppEnd; nothing is to be set")
    public var trackApplicationLifecycleEvents: Bool {
        get { false }
        set {}
    }
    @available(*, unavailable, message: "screens are not captured: a view says .trackScreen(\"cart\"), other code trackScreen(\"cart\")")
    public var captureScreenViews: Bool {
        get { false }
        set {}
    }
}

// MARK: - Events

extension EventClient {
    @available(*, unavailable, renamed: "track")
    public var capture: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write track(_:properties:)")
    public var logEvent: FirstGuess { FirstGuess() }
    @available(*, unavailable, renamed: "track(_:properties:)")
    public func track(name: String, properties: [String: Any?] = [:]) {}
    @available(*, unavailable, renamed: "track(_:properties:)")
    public func track(event: String, properties: [String: Any?] = [:]) {}
    @available(*, unavailable, renamed: "track(_:properties:)")
    public func track(eventType: String, eventProperties: [String: Any?] = [:]) {}
    @available(*, unavailable, renamed: "track(_:properties:)")
    public func track(_ name: String, withProperties: [String: Any?]) {}
    @available(*, unavailable, message: "errors are not collected: write track(\"failed\", properties: [\"reason\": …])")
    public var captureException: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "errors are not collected: write track(\"failed\", properties: [\"reason\": …])")
    public var recordError: FirstGuess { FirstGuess() }
    @available(*, unavailable, renamed: "trackScreen")
    public var screen: FirstGuess { FirstGuess() }
    @available(*, unavailable, renamed: "trackScreen")
    public var trackViewScreen: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write let timer = startTimer(\"checkout\"), and timer.end()")
    public var time: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write let timer = startTimer(\"checkout\"), and timer.end()")
    public var trackTimerStart: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "keep what startTimer(_:) returns, and write timer.end()")
    public var trackTimerEnd: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "an app's sessions begin and end by themselves, once attach() has been called")
    public var startSession: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "an app's sessions begin and end by themselves, once attach() has been called")
    public var endSession: FirstGuess { FirstGuess() }
}

// MARK: - Whom events concern, and what each of them says

extension EventClient {
    @available(*, unavailable, renamed: "identify(_:)")
    public func identify(userId: String, traits: Any? = nil) {}
    @available(*, unavailable, renamed: "identify(_:)")
    public func identify(distinctId: String) {}
    @available(*, unavailable, message: "there are no profiles: write identify(id), and give events the properties")
    public func identify(_ id: String, userProperties: [String: Any?]) {}
    @available(*, unavailable, renamed: "identify")
    public var login: FirstGuess { FirstGuess() }
    @available(*, unavailable, renamed: "identify")
    public var setUserID: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write identify(id)")
    public var setUserId: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write identify(nil), or reset() where another person begins")
    public var logout: FirstGuess { FirstGuess() }
    @available(*, unavailable, renamed: "reset")
    public var resetAnonymousId: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "no report joins two ids: identify(id) tracks $identify, and later events carry $anonymous_id")
    public var alias: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "no report joins two ids: identify(id) tracks $identify, and later events carry $anonymous_id")
    public var createAlias: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "there are no groups: give events the group as a property, all of them by updateCommonProperties")
    public var group: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "there are no groups: give events the group as a property, all of them by updateCommonProperties")
    public var setGroup: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "there are no profiles: give events the property, all of them by updateCommonProperties")
    public var people: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "there are no profiles: give events the property, all of them by updateCommonProperties")
    public var setUserProperty: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write updateCommonProperties { $0[\"plan\"] = \"pro\" }")
    public var register: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write updateCommonProperties { $0[\"plan\"] = \"pro\" }")
    public var registerSuperProperties: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write updateCommonProperties { $0[\"plan\"] = \"pro\" }")
    public var setDefaultEventParameters: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write updateCommonProperties { $0[\"plan\"] = nil }")
    public var unregister: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write updateCommonProperties { $0[\"plan\"] = nil }")
    public var unregisterSuperProperty: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write updateCommonProperties { $0 = [:] }")
    public var clearSuperProperties: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write commonProperties")
    public var currentSuperProperties: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write configuration.enrichers = [{ draft in … }]: an enricher changes a draft, or drops it by nil")
    public var add: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write identity.distinctID")
    public var getDistinctId: FirstGuess { FirstGuess() }
    @available(*, unavailable, renamed: "identity.distinctID")
    public var distinctId: String { "" }
    @available(*, unavailable, message: "write identity.anonymousID")
    public var getAnonymousId: FirstGuess { FirstGuess() }
    @available(*, unavailable, renamed: "identity.anonymousID")
    public var anonymousId: String { "" }
    @available(*, unavailable, renamed: "identity.loginID")
    public var userId: String? { nil }
    @available(*, unavailable, message: "write sessionID")
    public var getSessionId: FirstGuess { FirstGuess() }
}

// MARK: - Consent, delivery, and what is not there

extension EventClient {
    @available(*, unavailable, message: "write try setConsent(.denied)")
    public var optOut: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write try setConsent(.denied)")
    public var optOutTracking: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write try setConsent(.granted)")
    public var optIn: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write try setConsent(.granted)")
    public var optInTracking: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write consent == .denied")
    public var isOptOut: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write consent == .denied")
    public var hasOptedOutTracking: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write try setConsent(.granted), or (.denied)")
    public var setAnalyticsCollectionEnabled: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write try setConsent(.granted), or (.denied)")
    public var enabled: Bool {
        get { false }
        set {}
    }
    @available(*, unavailable, message: "write updateUploads { $0.interval = .seconds(30) }")
    public var flushInterval: Double {
        get { 0 }
        set {}
    }
    @available(*, unavailable, message: "write await shutdown(within: .seconds(5))")
    public var close: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "write try await purge()")
    public var purgeStorage: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "there are no feature flags")
    public var isFeatureEnabled: FirstGuess { FirstGuess() }
    @available(*, unavailable, message: "there are no feature flags")
    public var getFeatureFlag: FirstGuess { FirstGuess() }
}

// MARK: - Values

extension EventID {
    @available(*, unavailable, message: "an order's number makes an id by EventID.derived(name:key:); EventID(uuidString:) reads a UUID")
    public init(_ text: String) { self = .made }
    @available(*, unavailable, message: "write EventID(uuidString: uuid.uuidString)")
    public init(_ uuid: UUID) { self = .made }
}

extension Properties {
    @available(
        *, unavailable,
        message: "take Properties in place of [String: Any]: a literal stays as it is, a dictionary of one type is Properties(values)"
    )
    public init(_ values: [String: Any]) { self = [:] }
}
