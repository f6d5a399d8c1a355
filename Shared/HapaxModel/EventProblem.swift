/// Why one event cannot be stored: a stable reason for programs and an explanation for people, without any of the event's content.
package struct EventProblem: Hashable, Sendable, Error {
    /// For programs.
    package let reason: Reason
    /// At most ``EventLimits/maximumDetailBytes`` bytes.
    package let detail: String

    /// A longer detail is cut at a character's end.
    package init(_ reason: Reason, detail: String) {
        self.reason = reason
        self.detail = Self.cut(detail)
    }

    /// The writer put a text in place of the number, so the bytes do not show the problem: such dead letters are recognised by the beginning of their
    /// detail.
    package static let notFinite = EventProblem(.invalidNumber, detail: "a number is not finite")

    private static func cut(_ detail: String) -> String {
        guard detail.utf8.count > EventLimits.maximumDetailBytes else { return detail }
        var result = ""
        var room = EventLimits.maximumDetailBytes
        for character in detail {
            room -= character.utf8.count
            if room < 0 { break }
            result.append(character)
        }
        return result
    }

    /// The reasons as they stand on the wire and in the dead letters. A name is never given a second meaning.
    package enum Reason: String, Sendable, CaseIterable {
        /// Not valid JSON (RFC 8259), or something follows the object.
        case invalidJSON = "invalid_json"
        /// JSON, but not an object.
        case notAnObject = "not_an_object"
        /// Malformed UTF-8.
        case invalidUTF8 = "invalid_utf8"
        /// A text or a key holds U+0000, which PostgreSQL cannot store.
        case nulCharacter = "nul_character"
        /// A `\u` escape of half a surrogate pair.
        case loneSurrogate = "lone_surrogate"
        /// Not finite, or beyond ``EventLimits/maximumNumberCharacters`` or ``EventLimits/maximumNumberExponent``.
        case invalidNumber = "invalid_number"
        /// Beyond ``EventLimits/maximumDepth``.
        case tooDeep = "too_deep"
        /// An object beyond ``EventLimits/maximumKeysPerObject``.
        case tooManyKeys = "too_many_keys"
        /// Beyond ``EventLimits/maximumEventBytes``.
        case eventTooLarge = "event_too_large"
        /// No `event_id`.
        case missingID = "missing_event_id"
        /// `event_id` is no UUID in the usual form, or the nil or the max UUID.
        case invalidID = "invalid_event_id"
        /// No `event`.
        case missingName = "missing_event"
        /// `event` is no text, or empty.
        case invalidName = "invalid_event"
        /// `event` is beyond ``EventLimits/maximumNameBytes``.
        case nameTooLong = "name_too_long"
        /// No `time`.
        case missingTime = "missing_time"
        /// `time` is no whole number, or outside 0…``EventLimits/maximumTime``.
        case invalidTime = "invalid_time"
        /// No `distinct_id`.
        case missingDistinctID = "missing_distinct_id"
        /// `distinct_id` is no text, or empty.
        case invalidDistinctID = "invalid_distinct_id"
        /// `distinct_id` is beyond ``EventLimits/maximumDistinctIDBytes``.
        case distinctIDTooLong = "distinct_id_too_long"
        /// `sequence` is no whole number, or negative.
        case invalidSequence = "invalid_sequence"
        /// `properties` is no object.
        case invalidProperties = "invalid_properties"
        /// It has another key than the first event of its request, which decides the project.
        case otherProject = "other_project"
        /// The project takes derived ids only from senders with a server key.
        case derivedIDNeedsServerKey = "derived_id_needs_server_key"
        /// The project takes no events of this user any more.
        case userBlocked = "user_blocked"
        /// The database refused this event's data although every check above had passed.
        case refusedByStore = "refused_by_store"
    }
}
