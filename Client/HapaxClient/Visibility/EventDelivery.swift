import HapaxModel

/// What became of one event, or of several that have no name any more.
///
/// Each is reported after the commit that records it, and once; an event whose dead letter is retried is reported again.
public enum EventDelivery: Hashable, Sendable {
    /// The server stored it, for the first time.
    case stored(EventID)
    /// The server had stored it before: an answer had been lost, or somebody else sent the same id.
    case duplicate(EventID)
    /// It is in the dead letters: the server refused it for good, or it was never sent, since it breaks a limit, another event
    /// waits under its id, or its bytes changed on the disk. One whose id cannot be read any more is among the dead letters only.
    ///
    /// `reason` is the one of its ``DeadLetter``, `detail` is for people; neither holds anything of the event.
    case rejected(EventID, reason: String, detail: String)
    /// So many events, at least one, were dropped for one of the reasons of ``EventClient/Status/dropped``: refused at intake, removed by the quota, purged,
    /// or lost with a damaged file.
    ///
    /// Refusals are reported with the next commit, at the latest when the client is shut down. Events that are found again in a damaged file
    /// are reported again, when they are delivered.
    case dropped(reason: String, count: Int)
    /// The subscriber was too slow: here this many deliveries are missing.
    case missed(Int)
}
