import Foundation
import HapaxModel

/// An event that was not stored and is not sent again by itself, with the reason.
public struct DeadLetter: Hashable, Sendable {
    /// Its sequence in its file; a retry keeps it.
    public let number: Int64
    /// nil if it could not be read.
    public let eventID: EventID?
    /// A stable name: one of `EventProblem.Reason`, an outcome of the server, or a code with which the server refused it.
    public let reason: String
    /// For people.
    public let detail: String
    /// When it became one, by the client's clock.
    public var time: Date { Date(unixMilliseconds: unixMilliseconds) }
    package let unixMilliseconds: Int64
    /// The event as it was to travel, without its sequence; not always valid JSON.
    public let event: [UInt8]

    package init(number: Int64, eventID: EventID?, reason: String, detail: String, time: Int64, event: [UInt8]) {
        self.number = number
        self.eventID = eventID
        self.reason = reason
        self.detail = detail
        unixMilliseconds = time
        self.event = event
    }
}

extension DeadLetter {
    /// Why a row is a dead letter whose bytes changed on the disk: it must not be sent as what the app tracked (I3).
    package static let changed = (reason: "damaged", detail: "the event's bytes changed on the disk")

    /// Not if its bytes changed on the disk, or hold a text for a number that JSON has not, even if they obey the limits (I3).
    package var holdsWhatWasTracked: Bool {
        reason != Self.changed.reason
            && (reason != EventProblem.notFinite.reason.rawValue || !detail.hasPrefix(EventProblem.notFinite.detail))
    }

    /// One line of JSON, its end included.
    package var line: [UInt8] {
        var writer = JSONWriter()
        writer.raw(#"{"number":"#)
        writer.integer(number)
        writer.raw(#","event_id":"#)
        if let eventID { writer.id(eventID) } else { writer.raw("null") }
        writer.raw(#","reason":"#)
        writer.string(reason)
        writer.raw(#","detail":"#)
        writer.string(detail)
        writer.raw(#","time":"#)
        writer.integer(unixMilliseconds)
        // An event over a limit is JSON all the same, unless the problem says otherwise.
        if EventScanner.check(event) == nil {
            writer.raw(#","event":"#)
            writer.raw(event.filter { $0 != 0x0A && $0 != 0x0D })
        } else {
            writer.raw(#","text":"#)
            let text = String(decoding: event, as: UTF8.self)
            writer.string(text)
            if !text.utf8.elementsEqual(event) {
                writer.raw(#","base64":"#)
                writer.string(Data(event).base64EncodedString())
            }
        }
        writer.raw("}\n")
        return writer.bytes
    }
}

/// What became of dead letters that were to be sent again.
public struct RetriedDeadLetters: Hashable, Sendable {
    /// Back in the queue.
    public internal(set) var retried: [EventID] = []
    /// Still dead letters: they break a limit whatever the server says, their bytes changed on the disk, or their id waits in the queue.
    public internal(set) var unfit = 0

    package init() {}
}
