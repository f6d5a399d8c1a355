import HapaxModel

/// An event before it is taken in, as an enricher sees it: automatic, common and own properties are joined.
public struct EventDraft: Hashable, Sendable {
    /// What happened, 1…200 bytes of UTF-8.
    public var name: String
    /// Whom it concerns, 1…200 bytes of UTF-8.
    public var distinctID: String
    /// Automatic, common and own ones, the later ones winning.
    public var properties: Properties
    /// What its call says.
    let own: Properties

    /// Adds properties, but none under a name that the event's own call has a value for.
    public mutating func add(_ others: Properties) {
        for (name, value) in others.byName where own[name] == nil { properties[name] = value }
    }
}

extension EventClient {
    /// Changes an event before it is stored, or drops it by returning nil; a drop takes no sequence and is counted as `enricher`.
    ///
    /// Runs on the thread that tracks, which waits for it. May run again for the same event if the identity or the common properties
    /// change meanwhile. It may call the client, though tracking from it runs the enrichers again.
    public typealias Enricher = @Sendable (EventDraft) -> EventDraft?
}
