import HapaxModel

/// The store's unique key: one event of one project.
package struct EventKey: Hashable, Sendable, Comparable {
    package var id: EventID
    package var projectID: Int32

    package init(id: EventID, projectID: Int32) {
        self.id = id
        self.projectID = projectID
    }

    /// The order in which every group touches the index, so that two groups with the same ids cannot deadlock.
    package static func < (left: EventKey, right: EventKey) -> Bool {
        left.id != right.id ? left.id < right.id : left.projectID < right.projectID
    }
}

/// One event decoded from its row. Made only for the few events whose fields are needed, since it costs more than a ``RowKey``.
package struct EventRecord: Sendable {
    package var key: EventKey
    /// Unescaped UTF-8.
    package var name: ArraySlice<UInt8>
    /// Unescaped UTF-8.
    package var distinctID: ArraySlice<UInt8>
    /// The client's clock, in Unix milliseconds.
    package var time: Int64
    /// The client's clock when it sent the batch, in Unix milliseconds.
    package var sentAt: Int64?
    package var installID: EventID?
    package var sequence: Int64?
    /// See ``ScannedEvent/fingerprint``.
    package var fingerprint: Int64
    /// A JSON object, as it was sent.
    package var properties: ArraySlice<UInt8>

    package init(_ event: ScannedEvent, id: EventID, projectID: Int32, envelope: EventBatch.Envelope) {
        self.init(
            key: EventKey(id: id, projectID: projectID), name: event.name, distinctID: event.distinctID, time: event.time,
            sentAt: envelope.sentAt, installID: envelope.installID, sequence: event.sequence, fingerprint: event.fingerprint,
            properties: event.properties)
    }

    init(
        key: EventKey, name: ArraySlice<UInt8>, distinctID: ArraySlice<UInt8>, time: Int64, sentAt: Int64?, installID: EventID?,
        sequence: Int64?, fingerprint: Int64, properties: ArraySlice<UInt8>
    ) {
        self.key = key
        self.name = name
        self.distinctID = distinctID
        self.time = time
        self.sentAt = sentAt
        self.installID = installID
        self.sequence = sequence
        self.fingerprint = fingerprint
        self.properties = properties
    }

    /// Equal for events with equal values, however their JSON is written.
    var valueHash: ValueHash { ValueHash(name: name, distinctID: distinctID, properties: properties) }
}
