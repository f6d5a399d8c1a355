import Foundation
import HapaxModel

/// An event that has a type: an enum of all events of an app, or a struct for each.
///
/// An `Encodable` type gets its ``properties`` for nothing.
public protocol TypedEvent {
    /// What happened, 1…200 bytes of UTF-8.
    var eventName: String { get }
    /// What the event says.
    var properties: Properties { get }
}

extension TypedEvent where Self: Encodable {
    /// The members as JSON, without `eventName`: `Date` as Unix milliseconds, `Data` in base64. An enum's cases with values are encoded by the
    /// compiler as members of their own; write `properties` for such an enum.
    public var properties: Properties {
        var properties = Properties(encoding: self)
        if properties["eventName"] != nil { properties["eventName"] = nil }
        return properties
    }
}

extension TypedEvent where Self: RawRepresentable, Self: Encodable {
    /// None: such an event is its name.
    public var properties: Properties { [:] }
}

/// Who takes events: ``EventClient``, ``NoEvents``, or what a test puts in their place. Code that tracks and is handed one can be tested.
///
/// The calls that people write are extensions of these requirements.
public protocol EventTracking: Sendable {
    /// As ``EventClient/track(_:properties:id:time:distinctID:)``.
    ///
    /// - Returns: The event's id; nil if it was refused.
    @discardableResult
    func track(_ event: NewEvent) -> EventID?

    /// As ``EventClient/trackDurably(_:properties:id:time:distinctID:)``.
    @discardableResult
    func trackDurably(_ event: NewEvent) async throws(TrackError) -> EventID

    /// As ``EventClient/identify(_:)``.
    func identify(_ id: String?)
}

/// What one call of `track` says.
public struct NewEvent: Hashable, Sendable {
    /// What happened, 1…200 bytes of UTF-8.
    public var name: String
    /// The event's own properties.
    public var properties: Properties
    /// The caller's own id, or ``EventID/made``.
    public var id: EventID
    /// When it happened; now if nil.
    public var time: Date?
    /// Whom it concerns; nil for who is logged in.
    public var distinctID: String?

    /// Takes what it is given.
    public init(_ name: String, properties: Properties = [:], id: EventID = .made, time: Date? = nil, distinctID: String? = nil) {
        (self.name, self.properties, self.id, self.time, self.distinctID) = (name, properties, id, time, distinctID)
    }
}

extension EventTracking {
    /// As ``EventClient/track(_:properties:id:time:distinctID:)``.
    @discardableResult
    public func track(
        _ name: String, properties: Properties = [:], id: EventID = .made, time: Date? = nil, distinctID: String? = nil
    ) -> EventID? {
        track(NewEvent(name, properties: properties, id: id, time: time, distinctID: distinctID))
    }

    /// As ``EventClient/trackDurably(_:properties:id:time:distinctID:)``.
    @discardableResult
    public func trackDurably(
        _ name: String, properties: Properties = [:], id: EventID = .made, time: Date? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        try await trackDurably(NewEvent(name, properties: properties, id: id, time: time, distinctID: distinctID))
    }

    /// As ``EventClient/track(_:properties:id:time:distinctID:)``, with the members of `value` as JSON: `Date` as Unix milliseconds, `Data` in base64. A
    /// value that is no JSON object makes the event a dead letter `invalid_properties`.
    @discardableResult
    public func track(
        _ name: String, encoding value: some Encodable, id: EventID = .made, time: Date? = nil, distinctID: String? = nil
    ) -> EventID? {
        track(NewEvent(name, properties: Properties(encoding: value), id: id, time: time, distinctID: distinctID))
    }

    /// As ``EventClient/trackDurably(_:properties:id:time:distinctID:)``, with the members of `value` as JSON: `Date` as Unix milliseconds, `Data` in
    /// base64. A value that is no JSON object makes the event a dead letter `invalid_properties`.
    ///
    /// - Throws: ``TrackError``.
    @discardableResult
    public func trackDurably(
        _ name: String, encoding value: some Encodable, id: EventID = .made, time: Date? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        try await trackDurably(NewEvent(name, properties: Properties(encoding: value), id: id, time: time, distinctID: distinctID))
    }

    /// As ``EventClient/track(_:properties:id:time:distinctID:)``, under the event's own name and with its properties.
    @discardableResult
    public func track(_ event: some TypedEvent, id: EventID = .made, time: Date? = nil, distinctID: String? = nil) -> EventID? {
        track(NewEvent(event.eventName, properties: event.properties, id: id, time: time, distinctID: distinctID))
    }

    /// As ``EventClient/trackDurably(_:properties:id:time:distinctID:)``, under the event's own name and with its properties.
    ///
    /// - Throws: ``TrackError``.
    @discardableResult
    public func trackDurably(
        _ event: some TypedEvent, id: EventID = .made, time: Date? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        try await trackDurably(NewEvent(event.eventName, properties: event.properties, id: id, time: time, distinctID: distinctID))
    }
}

extension EventClient: EventTracking {
    /// As ``track(_:properties:id:time:distinctID:)``.
    @discardableResult
    public func track(_ event: NewEvent) -> EventID? {
        track(event.name, properties: event.properties, id: event.id, time: event.time, distinctID: event.distinctID)
    }

    /// As ``trackDurably(_:properties:id:time:distinctID:)``.
    ///
    /// - Throws: ``TrackError``.
    @discardableResult
    public func trackDurably(_ event: NewEvent) async throws(TrackError) -> EventID {
        try await trackDurably(event.name, properties: event.properties, id: event.id, time: event.time, distinctID: event.distinctID)
    }
}

/// Refuses every event, and counts none: for previews, and for code that is handed something that tracks.
public struct NoEvents: EventTracking {
    /// Always the same.
    public init() {}

    /// Refuses it.
    @discardableResult
    public func track(_ event: NewEvent) -> EventID? { nil }

    /// Refuses it as ``DropReason/disabled``.
    @discardableResult
    public func trackDurably(_ event: NewEvent) async throws(TrackError) -> EventID { throw .refused(.disabled) }

    /// Does nothing.
    public func identify(_ id: String?) {}
}
