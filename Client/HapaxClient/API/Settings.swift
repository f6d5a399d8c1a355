import Foundation

/// Where events wait, and how many may.
public struct QueueSettings: Sendable {
    /// Created if missing, readable by its owner only. Any number of clients work in it, in any number of processes,
    /// each with a file of its own; what one leaves behind is sent by the others. On iOS it is in the app's own container: an app and its
    /// extension have a directory each.
    public var directory: URL
    /// What a durable event survives.
    public var durability: Durability = .process
    /// How much may wait on disk, dead letters included, and what happens at the limit.
    public var quota = QueueQuota()
    /// Events that may wait in memory for their commit, from 1; more are refused and counted.
    public var mailboxCapacity = 8_192
    /// Bytes, by estimate, of the events that may wait in memory for their commit; more are refused and counted. One alone may be larger.
    public var mailboxBytes = 64 * 1024 * 1024
    /// Whether a damaged file stays in the directory once what can be read of it has been recovered, for people to look at.
    public var keepsDamagedFiles = false

    init(directory: URL) { self.directory = directory }
}

/// What events say by themselves.
public struct AutomaticSettings: Sendable {
    /// Whether each event gets `$model`, `$manufacturer`, `$os`, `$os_version`, `$app_version`, `$lib` and `$lib_version`, collected
    /// once at the start; what is not known is left out. They count towards an event's limits.
    public var properties = true
    /// For `$app_version`; nil stands for the main bundle's.
    public var appVersion: String?
}

/// What helps while an app is made.
public struct DebugSettings: Sendable {
    /// Shows each event as readable JSON once it is stored, and uploads each alone, in order, as soon as it is stored; entering the
    /// background then waits as with ``UploadSettings/waitsInBackground``. This prints what is secret elsewhere.
    ///
    /// `track` still returns at once, and a failed upload still backs off and holds up no storing.
    public var isOn = false
    /// Where events are shown, one call for each, on the client's own thread; standard error by default.
    public var output: @Sendable (String) -> Void = DebugMode.standardError
}
