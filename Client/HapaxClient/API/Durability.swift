/// What an event survives once it is durable.
public enum Durability: String, Sendable, Hashable, CaseIterable {
    /// The end of the process, however it ends, SIGKILL included. A power cut may take the latest events
    /// (SQLite in WAL mode with `synchronous = NORMAL`).
    case process
    /// A power cut as well: the log is flushed to the disk at each commit (`synchronous = FULL`, on Apple's systems with `F_FULLFSYNC`).
    case power
}
