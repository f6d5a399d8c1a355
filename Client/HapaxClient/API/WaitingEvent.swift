import Foundation
import HapaxModel

/// An event on disk that the server has not acknowledged yet, as ``EventClient/waiting(limit:)`` lists it.
public struct WaitingEvent: Hashable, Sendable {
    /// Its number in the client's file.
    public let sequence: Int64
    /// Its id.
    public let id: EventID
    /// What happened.
    public let name: String
    /// When it happened.
    public var time: Date { Date(unixMilliseconds: unixMilliseconds) }
    private let unixMilliseconds: Int64
    /// The event as JSON, as it will travel.
    public let json: [UInt8]
    /// Whether the server has refused it alone (``EventClient/Status/held``).
    public let isHeld: Bool

    init(_ event: QueuedEvent) {
        (sequence, id, name, unixMilliseconds) = (event.number, event.id, event.name, event.time)
        (json, isHeld) = (event.bytes, event.isHeld)
    }
}
