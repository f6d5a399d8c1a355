import HapaxModel

@testable import HapaxClient

extension PreparedEvent {
    /// As the drainer prepares it; the same for the same number.
    ///
    /// - Parameter fill: Bytes of its one property.
    static func sample(_ sequence: Int64, fill: Int) -> PreparedEvent {
        let event = Event(
            id: .derived(name: "event", key: "\(sequence)"), name: "e", time: 1_000, distinctID: "u", sequence: sequence,
            properties: ["fill": .string(String(repeating: "x", count: fill))])
        return PreparedEvent(id: event.id, sequence: sequence, time: event.time, bytes: event.encoded().bytes)
    }
}
