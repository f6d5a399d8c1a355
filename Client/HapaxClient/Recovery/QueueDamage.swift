import HapaxModel

/// A queue file that turned out to be damaged and was set aside. Once all that can be read has been recovered it is deleted, unless
/// ``QueueSettings/keepsDamagedFiles`` says otherwise.
public struct QueueDamage: Hashable, Sendable {
    /// The file's new name, in the queue's directory.
    public internal(set) var file: String
    /// Waiting events that could be read and are in the file that took over, with their ids.
    public internal(set) var recovered = 0
    /// Dead letters that could be read, likewise.
    public internal(set) var recoveredDeadLetters = 0
    /// Waiting events that could be read and are dead letters now, since another event has their id.
    public internal(set) var deadLettered = 0
    /// Waiting events that could not be read, or not yet; nil if nobody knows how many there were.
    public internal(set) var lost: Int?
    /// Dead letters that could not be read, likewise.
    public internal(set) var lostDeadLetters: Int?
    /// Whether everything that can be read has been recovered. That goes on with each upload, which sends other events meanwhile.
    public internal(set) var isRecovered = false

    /// Whether events are missing, or may be: nobody knows how many there were.
    package var mayHaveLost: Bool { lost != 0 }

    /// The event that reports it; its properties are the counts, never the path.
    static let eventName = "$QueueDamaged"

    var properties: Properties {
        [
            "$recovered": recovered, "$recovered_dead_letters": recoveredDeadLetters, "$dead_lettered": deadLettered, "$lost": lost,
            "$lost_dead_letters": lostDeadLetters,
        ]
    }
}

/// What a running file knows of damage.
struct DamageRecord: Sendable {
    /// Something is still to be recovered.
    var isPending: Bool
    /// The latest since the file was opened.
    var latest: QueueDamage?
}
