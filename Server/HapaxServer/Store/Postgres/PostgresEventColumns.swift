import HapaxModel

/// The columns of `events` that a server sends, in PostgreSQL's binary format, the same for COPY and for array parameters. `received_at` is
/// none of them: the database's clock gives it.
enum PostgresEventColumn: String, CaseIterable {
    case projectID = "project_id"
    case eventID = "event_id"
    case bucket
    case event
    case distinctID = "distinct_id"
    case time
    case sentAt = "sent_at"
    case installID = "install_id"
    case sequence
    case fingerprint
    case properties

    static let list = allCases.map(\.rawValue).joined(separator: ", ")

    /// The type's name and its fixed object id (`pg_type.dat`).
    var type: (name: String, oid: UInt32) {
        switch self {
        case .projectID, .bucket: ("int4", 23)
        case .eventID, .installID: ("uuid", 2950)
        case .event, .distinctID: ("text", 25)
        case .time, .sentAt: ("timestamptz", 1184)
        case .sequence, .fingerprint: ("int8", 20)
        case .properties: ("jsonb", 3802)
        }
    }

    /// Appends the value of one record, preceded by its length; −1 for NULL.
    func write(_ record: EventRecord, to bytes: inout [UInt8]) {
        switch self {
        case .projectID: bytes.appendField(record.key.projectID)
        case .eventID: bytes.appendField(record.key.id)
        case .bucket: bytes.appendField(record.key.id.bucket)
        case .event: bytes.appendField(text: record.name)
        case .distinctID: bytes.appendField(text: record.distinctID)
        case .time: bytes.appendField(unixMilliseconds: record.time)
        case .sentAt:
            if let sentAt = record.sentAt { bytes.appendField(unixMilliseconds: sentAt) } else { bytes.appendNull() }
        case .installID:
            if let installID = record.installID { bytes.appendField(installID) } else { bytes.appendNull() }
        case .sequence:
            if let sequence = record.sequence { bytes.appendField(sequence) } else { bytes.appendNull() }
        case .fingerprint: bytes.appendField(record.fingerprint)
        case .properties: bytes.appendField(json: record.properties)
        }
    }

    /// One column of all records as an array parameter.
    func array(_ records: [EventRecord]) -> [UInt8] {
        PostgresArray.bytes(records, oid: type.oid) { write($0, to: &$1) }
    }
}

/// Parameters that carry many values at once.
enum PostgresArray {
    /// A one-dimensional array in binary format: dimensions, null flag, element type, length, lower bound, elements.
    static func bytes<Element>(_ elements: [Element], oid: UInt32, write: (Element, inout [UInt8]) -> Void) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(20 + elements.count * 24)
        bytes.appendBigEndian(Int32(1))
        bytes.appendBigEndian(Int32(1))
        bytes.appendBigEndian(oid)
        bytes.appendBigEndian(Int32(elements.count))
        bytes.appendBigEndian(Int32(1))
        for element in elements { write(element, &bytes) }
        return bytes
    }
}

/// The body of a binary COPY (https://www.postgresql.org/docs/current/sql-copy.html).
package enum PostgresCopy {
    package static func bytes(_ records: some Collection<EventRecord>) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(records.reduce(32) { $0 + 256 + $1.properties.count })
        bytes.append(contentsOf: "PGCOPY\n".utf8)
        bytes.append(contentsOf: [0xFF, 0x0D, 0x0A, 0x00])
        bytes.appendBigEndian(Int32(0))
        bytes.appendBigEndian(Int32(0))
        for record in records {
            bytes.appendBigEndian(Int16(PostgresEventColumn.allCases.count))
            for column in PostgresEventColumn.allCases { column.write(record, to: &bytes) }
        }
        bytes.appendBigEndian(Int16(-1))
        return bytes
    }

    package static let statement = "COPY events (\(PostgresEventColumn.list)) FROM STDIN (FORMAT binary)"
}

extension [UInt8] {
    mutating func appendBigEndian(_ value: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: value.bigEndian) { append(contentsOf: $0) }
    }

    mutating func appendNull() {
        appendBigEndian(Int32(-1))
    }

    mutating func appendField(_ value: some FixedWidthInteger) {
        appendBigEndian(Int32(value.bitWidth / 8))
        appendBigEndian(value)
    }

    mutating func appendField(_ id: EventID) {
        appendBigEndian(Int32(16))
        appendBigEndian(id.high)
        appendBigEndian(id.low)
    }

    /// jsonb travels as a version byte and its text.
    mutating func appendField(json: some Collection<UInt8>) {
        appendBigEndian(Int32(json.count + 1))
        append(1)
        append(contentsOf: json)
    }

    mutating func appendField(text: some Collection<UInt8>) {
        appendBigEndian(Int32(text.count))
        append(contentsOf: text)
    }

    /// timestamptz is microseconds since 2000-01-01; the range of `time` is far inside 64 bits.
    mutating func appendField(unixMilliseconds: Int64) {
        appendField((unixMilliseconds - 946_684_800_000) * 1_000)
    }
}
