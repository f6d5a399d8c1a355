import HapaxModel
import HapaxServer

/// Events for the server's tests, made the way a request makes them.
enum Sample {
    static let now: Int64 = 1_767_225_600_000

    /// The same in days.
    static let day = Int32(now / 86_400_000)

    /// The n-th id of a fixed sequence: version 7, dated 2026-01-01 unless another day is given.
    static func id(_ number: UInt64, day: Int32 = day) -> EventID {
        EventID(high: UInt64(day) * 86_400_000 << 16 | 0x7000, low: 0b10 << 62 | number)
            ?? EventID.derived(name: "unreachable", key: "\(number)")
    }

    static func event(
        _ id: EventID, name: String = "order_paid", distinctID: String = "customer-1", time: Int64 = now, sequence: Int64? = nil,
        properties: Properties = ["amount": 12.5]
    ) -> [UInt8] {
        Event(id: id, name: name, time: time, distinctID: distinctID, sequence: sequence, properties: properties).encoded().bytes
    }

    static func record(
        _ id: EventID, project: Int32 = 1, name: String = "order_paid", properties: Properties = ["amount": 12.5],
        envelope: EventBatch.Envelope = .init()
    ) -> EventRecord {
        EventRecord(
            EventScanner.scan(event(id, name: name, properties: properties)[...]), id: id, projectID: project, envelope: envelope)
    }

    static func request(_ events: [[UInt8]], project: Int32 = 1, envelope: EventBatch.Envelope = .init()) throws -> IngestRequest {
        let body = EventBatch(envelope: envelope, events: events).encoded()
        return try IngestRequest(json: body[...], projectID: project)
    }

    static func group(_ records: [EventRecord], lookups: [EventKey] = [], reports: [InstallReport] = []) -> StoreGroup {
        StoreGroup(records: records.sorted { $0.key < $1.key }, lookups: lookups.sorted(), reports: reports)
    }
}

extension IngestOutcome {
    /// Of every event, in order.
    var outcomes: [Receipt.Outcome] {
        let others = Dictionary(uniqueKeysWithValues: results.map { ($0.index, $0.outcome) })
        return (0..<received).map { others[$0] ?? .stored }
    }
}
