/// When events are uploaded without being asked, and how.
public struct UploadSettings: Hashable, Sendable {
    /// How often to upload what is stored. Less than 5 s acts as 5 s; the value read back is the one set. With nil only ``EventClient/flush(within:)``
    /// and ``EventClient/shutdown(within:)`` send: no timer, no count, no entering of the background, no repeated attempt. For an app that sends
    /// rarely, 120 s (R26).
    public var interval: Duration?
    /// Stored events from which an upload begins, checked after each commit; less than 1 acts as 1.
    public var bulkSize: Int
    /// Over which networks events are uploaded without being asked.
    public var networks: NetworkPolicy
    /// Names of events that are uploaded as soon as they are stored.
    public var immediateEvents: Set<String>
    /// Whether entering the background waits for its uploads, within the time that is granted; blocks the thread that signals.
    public var waitsInBackground: Bool

    /// Takes what it is given.
    public init(
        interval: Duration? = .seconds(15), bulkSize: Int = 100, networks: NetworkPolicy = .standard,
        immediateEvents: Set<String> = ["$AppStart"], waitsInBackground: Bool = false
    ) {
        (self.interval, self.bulkSize, self.networks) = (interval, bulkSize, networks)
        (self.immediateEvents, self.waitsInBackground) = (immediateEvents, waitsInBackground)
    }

    /// Takes what differs from the settings before.
    mutating func take(_ changed: UploadSettings, over before: UploadSettings) {
        if changed.interval != before.interval { interval = changed.interval }
        if changed.bulkSize != before.bulkSize { bulkSize = changed.bulkSize }
        if changed.networks != before.networks { networks = changed.networks }
        if changed.immediateEvents != before.immediateEvents { immediateEvents = changed.immediateEvents }
        if changed.waitsInBackground != before.waitsInBackground { waitsInBackground = changed.waitsInBackground }
    }
}
