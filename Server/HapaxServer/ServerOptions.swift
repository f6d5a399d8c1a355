/// How the server listens, and how much it takes on at once.
package struct ServerOptions: Sendable {
    package var host = "127.0.0.1"
    /// 0 picks a free one.
    package var port = 8080
    /// Connections beyond this wait to be accepted.
    package var maximumConnections = 1_024
    /// Bytes of bodies being read, and again of requests waiting to be stored, beyond which a further one is refused with 503.
    package var maximumWaitingBytes = 64 * 1024 * 1024
    package var deadlines = RequestDeadlineLimits()

    package init() {}
}

/// How long a sender may take; see ``RequestDeadlines``.
package struct RequestDeadlineLimits: Sendable {
    package var header = Duration.seconds(10)
    package var body = Duration.seconds(30)
    package var idle = Duration.seconds(75)

    package init() {}
}
