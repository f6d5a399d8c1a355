import Foundation
import HapaxModel

/// An event that was not stored and is not sent again by itself, with the reason.
public struct DeadLetter: Hashable, Sendable {
    /// Its name among the dead letters of its queue.
    public let number: Int64
    /// nil if it could not be read.
    public let eventID: EventID?
    /// A stable name: one of `EventProblem.Reason`, an outcome of the server, or a code with which the server refused it.
    public let reason: String
    /// For people.
    public let detail: String
    /// When it became one, by the client's clock, in Unix milliseconds.
    public let time: Int64
    /// The event as it was to travel; not always valid JSON.
    public let event: [UInt8]

    /// Which install the event is of, and under which number the letter is known there.
    package var origin = Origin.own
    package var originNumber: Int64?

    package enum Origin: Hashable, Sendable {
        /// The queue that the letter is in.
        case own
        case nobody
        case install(EventID)
    }

    package init(number: Int64, eventID: EventID?, reason: String, detail: String, time: Int64, event: [UInt8]) {
        self.number = number
        self.eventID = eventID
        self.reason = reason
        self.detail = detail
        self.time = time
        self.event = event
    }
}

extension DeadLetter {
    /// Not if its bytes changed on the disk, or hold a text for a number that JSON has not, even if they obey the limits (I3).
    package var holdsWhatWasTracked: Bool {
        reason != DamagedRows.reason
            && (reason != EventProblem.notFinite.reason.rawValue || detail != EventProblem.notFinite.detail)
    }

    /// The same letter as it looks from another queue: with a number by which that one knows it again.
    func belonging(to install: EventID) -> DeadLetter {
        var letter = self
        if origin == .own {
            letter.origin = .install(install)
            letter.originNumber = number
        } else if originNumber == nil {
            // An event that this queue had taken over, and that was refused here.
            letter.originNumber = Int64(bitPattern: EventID.derived(name: "\(install)", key: "\(number)").low)
        }
        return letter
    }
}

extension DeadLetter {
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
        writer.integer(time)
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
