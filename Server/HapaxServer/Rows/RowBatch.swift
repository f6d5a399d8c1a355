import HapaxModel

/// A row's key and fingerprint, and where its bytes are. It holds no references, so sorting and merging only move plain values.
package struct RowKey: Sendable {
    package var key: EventKey
    /// See ``ScannedEvent/fingerprint``.
    package var fingerprint: Int64
    /// The range of its bytes in its batch.
    var start: Int32
    var end: Int32
    /// The event's place in its request.
    var entry: Int32
    /// The request's place in its group.
    var batch: Int32 = 0

    /// The place of an event in its group.
    struct Place: Hashable {
        var batch: Int32
        var entry: Int32
    }

    var place: Place { Place(batch: batch, entry: entry) }
}

/// The rows of one request, one after the other, each as PostgreSQL's binary COPY takes it
/// (https://www.postgresql.org/docs/current/sql-copy.html), and their keys.
///
/// Each event is written as a row right after it was scanned, while its bytes are in the processor's cache; nothing else of it is kept.
package struct RowBatch: Sendable {
    package private(set) var bytes: [UInt8] = []
    package private(set) var keys: [RowKey] = []

    /// Reserves memory for the rows of a body: a row takes as many bytes as its event, or little more.
    mutating func reserve(_ bodyBytes: Int) {
        bytes.reserveCapacity(bodyBytes + min(bodyBytes, Self.overhead * EventLimits.maximumEventsPerBatch))
    }

    /// More bytes than a row takes in addition to those of its event.
    private static let overhead = 64

    /// - Parameters:
    ///   - body: The bytes that hold the event's fields.
    ///   - entry: The event's place in its request.
    mutating func append(
        _ event: EventFields, in body: UnsafeBufferPointer<UInt8>, _ key: EventKey, entry: Int, _ envelope: EventBatch.Envelope
    ) {
        event.name.withBytes(of: body) { name in
            event.distinctID.withBytes(of: body) { distinctID in
                event.properties.withBytes(of: body) { properties in
                    let fingerprint = EventFields.fingerprint(
                        name: UnsafeRawBufferPointer(name), distinctID: UnsafeRawBufferPointer(distinctID),
                        properties: UnsafeRawBufferPointer(properties))
                    append(
                        key, fingerprint: fingerprint, name: name, distinctID: distinctID, time: event.time, sentAt: envelope.sentAt,
                        installID: envelope.installID, sequence: event.sequence, properties: properties, entry: entry)
                }
            }
        }
    }

    mutating func append(_ record: EventRecord, entry: Int) {
        record.name.withUnsafeBufferPointer { name in
            record.distinctID.withUnsafeBufferPointer { distinctID in
                record.properties.withUnsafeBufferPointer { properties in
                    append(
                        record.key, fingerprint: record.fingerprint, name: name, distinctID: distinctID, time: record.time,
                        sentAt: record.sentAt, installID: record.installID, sequence: record.sequence, properties: properties, entry: entry)
                }
            }
        }
    }

    private mutating func append(
        _ key: EventKey, fingerprint: Int64, name: UnsafeBufferPointer<UInt8>, distinctID: UnsafeBufferPointer<UInt8>, time: Int64,
        sentAt: Int64?, installID: EventID?, sequence: Int64?, properties: UnsafeBufferPointer<UInt8>, entry: Int
    ) {
        let start = bytes.count
        bytes.appendFixed { fields in
            fields.put(Int16(PostgresEventColumn.allCases.count))
            fields.putField(key.projectID)
            fields.putField(key.id)
            fields.putField(key.id.bucket)
            fields.put(Int32(name.count))
        }
        bytes.append(contentsOf: name)
        bytes.appendFixed { $0.put(Int32(distinctID.count)) }
        bytes.append(contentsOf: distinctID)
        bytes.appendFixed { fields in
            fields.putField(PostgresTime.microseconds(time))
            fields.putField(sentAt.map(PostgresTime.microseconds))
            if let installID { fields.putField(installID) } else { fields.put(PostgresField.null) }
            fields.putField(sequence)
            fields.putField(fingerprint)
            // In binary, jsonb is a version byte and its text.
            fields.put(Int32(properties.count + 1))
            fields.put(UInt8(1))
        }
        bytes.append(contentsOf: properties)
        keys.append(RowKey(key: key, fingerprint: fingerprint, start: Int32(start), end: Int32(bytes.count), entry: Int32(entry)))
    }

    /// The same rows with the envelope's fields that came after its events.
    func with(sentAt: Int64?, installID: EventID?) -> RowBatch {
        var batch = RowBatch()
        batch.reserve(bytes.count)
        for key in keys {
            var record = EventRecord(key, in: bytes)
            (record.sentAt, record.installID) = (sentAt, installID)
            batch.append(record, entry: Int(key.entry))
        }
        return batch
    }
}

extension EventRecord {
    package init(_ key: RowKey, in bytes: [UInt8]) {
        var fields = PostgresFields(bytes, from: Int(key.start))
        for _ in 0..<3 { _ = fields.next() }
        self.init(
            key: key.key, name: fields.next() ?? [], distinctID: fields.next() ?? [],
            time: fields.next().map { PostgresTime.milliseconds(PostgresField.integer($0)) } ?? 0,
            sentAt: fields.next().map { PostgresTime.milliseconds(PostgresField.integer($0)) },
            installID: fields.next().flatMap { EventID(bytes: $0) }, sequence: fields.next().map(PostgresField.integer),
            fingerprint: fields.next().map(PostgresField.integer) ?? 0, properties: fields.next()?.dropFirst() ?? [])
    }
}
