/// One event found in a body: its fields, and its properties as the bytes that were sent.
package struct ScannedEvent: Sendable {
    /// The event's own id, even if the event has another problem; nil if no id can be read.
    package var id: EventID?
    /// Unescaped UTF-8.
    package var name: ArraySlice<UInt8>
    /// Unescaped UTF-8.
    package var distinctID: ArraySlice<UInt8>
    /// Unix milliseconds.
    package var time: Int64
    /// nil if it has none.
    package var sequence: Int64?
    /// A JSON object, as it was sent.
    package var properties: ArraySlice<UInt8>
    /// The whole event, as it was sent.
    package var wire: ArraySlice<UInt8>
    /// Why it cannot be stored; the fields above then hold what could be read.
    package var problem: EventProblem?

    /// See ``EventFields/fingerprint(name:distinctID:properties:)``.
    package var fingerprint: Int64 {
        name.withUnsafeBytes { name in
            distinctID.withUnsafeBytes { distinctID in
                properties.withUnsafeBytes { EventFields.fingerprint(name: name, distinctID: distinctID, properties: $0) }
            }
        }
    }

    /// Equal for events with equal values, however they are written.
    package var valueHash: ValueHash { ValueHash(name: name, distinctID: distinctID, properties: properties) }

    /// Where the values of another event differ: `event`, `distinct_id`, and properties as `properties.NAME`. Empty for the same event.
    package func differences(from other: ScannedEvent) -> [String] {
        guard fingerprint != other.fingerprint, valueHash.value != other.valueHash.value else { return [] }
        let (mine, others) = (PropertyLookup.hashes(in: properties), PropertyLookup.hashes(in: other.properties))
        let names = Set(mine.keys).union(others.keys).filter { mine[$0] != others[$0] }
        return (name == other.name ? [] : ["event"]) + (distinctID == other.distinctID ? [] : ["distinct_id"])
            + names.map { "properties." + String(decoding: $0, as: UTF8.self) }.sorted()
    }

    /// Times from 1973 to 5138 if read as seconds; before 1973 if read as milliseconds.
    static let secondsOfToday = 1e8...1e11

    /// Whether a time is probably in seconds, and so some fifty years too early. It is stored unchanged.
    package static func looksLikeSeconds(_ time: Int64) -> Bool { secondsOfToday ~= Double(time) }
}
