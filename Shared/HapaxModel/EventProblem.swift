/// Why one event cannot be stored: a stable reason for programs and an explanation for people, without any of the event's content.
public struct EventProblem: Hashable, Sendable, Error {
    public let reason: Reason
    /// At most ``EventLimits/maximumDetailBytes`` bytes.
    public let detail: String

    public init(_ reason: Reason, detail: String) {
        self.reason = reason
        self.detail = Self.cut(detail)
    }

    /// At a character's end, so that what is left is a whole text.
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
    public enum Reason: String, Sendable, CaseIterable {
        case invalidJSON = "invalid_json"
        case notAnObject = "not_an_object"
        case invalidUTF8 = "invalid_utf8"
        case nulCharacter = "nul_character"
        case loneSurrogate = "lone_surrogate"
        case invalidNumber = "invalid_number"
        case tooDeep = "too_deep"
        case tooManyKeys = "too_many_keys"
        case eventTooLarge = "event_too_large"
        case missingID = "missing_event_id"
        case invalidID = "invalid_event_id"
        case missingName = "missing_event"
        case invalidName = "invalid_event"
        case nameTooLong = "name_too_long"
        case missingTime = "missing_time"
        case invalidTime = "invalid_time"
        case missingDistinctID = "missing_distinct_id"
        case invalidDistinctID = "invalid_distinct_id"
        case distinctIDTooLong = "distinct_id_too_long"
        case invalidSequence = "invalid_sequence"
        case invalidProperties = "invalid_properties"
        /// The database refused this event's data although every check above had passed.
        case refusedByStore = "refused_by_store"
    }
}
