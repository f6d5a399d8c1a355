import HapaxModel

/// Values in PostgreSQL's binary format: a length, then that many bytes; −1 for NULL.
enum PostgresField {
    static let null: Int32 = -1

    static func integer(_ bytes: ArraySlice<UInt8>) -> Int64 { bytes.reduce(0) { $0 << 8 | Int64($1) } }
}

/// timestamptz is microseconds since 2000-01-01; the range of `time` is far inside 64 bits.
enum PostgresTime {
    static func microseconds(_ unixMilliseconds: Int64) -> Int64 { (unixMilliseconds - 946_684_800_000) * 1_000 }
    static func milliseconds(_ microseconds: Int64) -> Int64 { microseconds / 1_000 + 946_684_800_000 }
}

/// Reads the fields of a row that ``RowBatch`` has written, one after the other.
struct PostgresFields {
    let bytes: [UInt8]
    private(set) var position: Int

    /// - Parameter start: Where the row begins.
    init(_ bytes: [UInt8], from start: Int) {
        self.bytes = bytes
        position = start + 2
    }

    /// - Returns: nil for NULL.
    mutating func next() -> ArraySlice<UInt8>? {
        let length = Int32(truncatingIfNeeded: PostgresField.integer(bytes[position..<position + 4]))
        position += 4
        guard length >= 0 else { return nil }
        defer { position += Int(length) }
        return bytes[position..<position + Int(length)]
    }
}

/// Writes numbers and ids of fixed length.
struct FixedFields {
    /// Bytes for one call of ``appendFixed(_:)``; more than any call writes.
    static let capacity = 128

    private let memory: UnsafeMutableRawPointer
    private(set) var count = 0

    fileprivate init(_ memory: UnsafeMutableRawPointer) { self.memory = memory }

    @inline(__always)
    mutating func put<Number: FixedWidthInteger>(_ number: Number) {
        memory.storeBytes(of: number.bigEndian, toByteOffset: count, as: Number.self)
        count += MemoryLayout<Number>.size
    }

    @inline(__always)
    mutating func putField<Number: FixedWidthInteger>(_ number: Number?) {
        guard let number else { return put(PostgresField.null) }
        put(Int32(MemoryLayout<Number>.size))
        put(number)
    }

    @inline(__always)
    mutating func putField(_ id: EventID) {
        put(Int32(16))
        put(id.high)
        put(id.low)
    }
}

extension [UInt8] {
    /// Appends up to ``FixedFields/capacity`` bytes at once.
    @inline(__always)
    mutating func appendFixed(_ write: (inout FixedFields) -> Void) {
        withUnsafeTemporaryAllocation(byteCount: FixedFields.capacity, alignment: 8) { memory in
            guard let base = memory.baseAddress else { return }
            var fields = FixedFields(base)
            write(&fields)
            append(contentsOf: UnsafeRawBufferPointer(start: base, count: fields.count))
        }
    }

    mutating func appendField(_ value: some FixedWidthInteger) {
        appendFixed { $0.putField(value) }
    }

    mutating func appendField(_ id: EventID) {
        appendFixed { $0.putField(id) }
    }

    /// In binary, jsonb is a version byte and its text.
    mutating func appendField(json: some Collection<UInt8>) {
        appendFixed { fields in
            fields.put(Int32(json.count + 1))
            fields.put(UInt8(1))
        }
        append(contentsOf: json)
    }
}
