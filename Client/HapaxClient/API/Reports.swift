import HapaxModel

/// What one ``EventClient/flush(within:)`` saw happen.
public struct FlushReport: Hashable, Sendable {
    /// Stored by the server for the first time.
    public var stored: Int
    /// Stored by the server before: an earlier answer had been lost.
    public var duplicates: Int
    /// Moved to the dead letters, because the server refused them for good or because their bytes changed on the disk; and those that became
    /// dead letters as they were stored, since the last report, because they break a limit or their id is another's.
    public var deadLettered: Int
    /// Events that still wait in this client's file or memory; those that are being committed at that moment can count twice.
    public var remaining: Int
    /// Why it ended before the queue was empty.
    public var failure: DeliveryFailure?
}

/// What was left when a client was shut down.
public struct ShutdownReport: Hashable, Sendable {
    /// Events in this client's file, on disk; any other client on this directory sends them.
    public var stored: Int
    /// Events that could not be stored, because commits failed until the end, or that were in files that somebody has deleted, dead letters
    /// included. Those of a commit that is still stuck at the limit count: it may succeed later.
    public var lost: Int
    /// Why the latest attempt to deliver failed; nil if it did not, or if none was made.
    public var failure: DeliveryFailure?
    /// Whether there may be events on disk that ``stored`` does not count: in a damaged file of which not everything has been recovered yet
    /// (``EventClient/Status/damage``).
    public var mayLeaveMore = false
}
