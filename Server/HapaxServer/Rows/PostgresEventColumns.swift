import HapaxModel

/// The columns of `events` that a server sends, in the order of a row (``RowBatch``). The database itself sets `received_at`.
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

    /// This column of some rows as an array parameter: its elements are written as a row's fields are.
    func array(_ rows: [RowKey], in batches: [[UInt8]]) -> [UInt8] {
        let number = Self.allCases.firstIndex(of: self) ?? 0
        return PostgresArray.bytes(rows, oid: type.oid) { row, bytes in
            var fields = PostgresFields(batches[Int(row.batch)], from: Int(row.start))
            for _ in 0..<number { _ = fields.next() }
            let start = fields.position
            _ = fields.next()
            bytes.append(contentsOf: fields.bytes[start..<fields.position])
        }
    }
}

/// Parameters that carry many values at once.
enum PostgresArray {
    /// A one-dimensional array in binary format: dimensions, null flag, element type, length, lower bound, elements.
    static func bytes<Element>(_ elements: [Element], oid: UInt32, write: (Element, inout [UInt8]) -> Void) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(20 + elements.count * 24)
        bytes.appendFixed { head in
            head.put(Int32(1))
            head.put(Int32(1))
            head.put(oid)
            head.put(Int32(elements.count))
            head.put(Int32(1))
        }
        for element in elements { write(element, &bytes) }
        return bytes
    }
}

/// The body of a binary COPY (https://www.postgresql.org/docs/current/sql-copy.html).
package enum PostgresCopy {
    package static func bytes(_ rows: [RowKey], in batches: [[UInt8]]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(rows.reduce(32) { $0 + Int($1.end - $1.start) })
        bytes.append(contentsOf: "PGCOPY\n".utf8)
        bytes.append(contentsOf: [0xFF, 0x0D, 0x0A, 0x00, 0, 0, 0, 0, 0, 0, 0, 0])
        for row in rows {
            batches[Int(row.batch)].withUnsafeBufferPointer {
                bytes.append(contentsOf: UnsafeBufferPointer(rebasing: $0[Int(row.start)..<Int(row.end)]))
            }
        }
        bytes.appendFixed { $0.put(Int16(-1)) }
        return bytes
    }

    package static func statement(into table: String = "events") -> String {
        "COPY \(table) (\(PostgresEventColumn.list)) FROM STDIN (FORMAT binary)"
    }
}
