import HapaxModel

@testable import HapaxClient

extension PreparedEvent {
    /// As the writer prepares it; the same for the same number.
    ///
    /// - Parameter fill: Bytes of its one property.
    static func sample(_ number: Int64, fill: Int) -> PreparedEvent {
        let event = Event(
            id: .derived(name: "event", key: "\(number)"), name: "e", time: 1_000, distinctID: "u",
            properties: ["fill": String(repeating: "x", count: fill)])
        return PreparedEvent(id: event.id, time: event.time, bytes: event.encoded().bytes)
    }
}
