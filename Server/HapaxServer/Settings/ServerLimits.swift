import HapaxModel

/// Every limit of the server: what it protects, and what happens at it. What client and server both obey is in `EventLimits`.
package struct ServerLimits: Sendable {
    // MARK: Connections

    /// Connections at once. At the limit the one that has been idle longest is closed, then the one whose header or body is slowest; if all are
    /// being answered, the new one is closed. Never above what the process's descriptors allow, see ``reservedDescriptors``.
    package var connections = 10_000
    /// Descriptors kept for all that is no connection: the store, the log, the listening socket, whatever the system's libraries open.
    package static let reservedDescriptors = 128
    /// Connections that the system has accepted and the server has not; beyond them the system drops new ones, which senders try again.
    package static let backlog = 1_024
    /// How long accepting rests when the system has no descriptor left: without it the loop would spin.
    package static let acceptPause = Duration.milliseconds(100)

    // MARK: Time

    /// Within this of the connection, or of its first byte on a kept one, a header block must be there: else 408 and the end.
    package var header = Duration.seconds(10)
    /// Within this of its header a body must be there: else 408 and the end. It is also how long the rest of a refused body is read.
    package var body = Duration.seconds(30)
    /// Within this of the last some more of a body must come: else 408 and the end.
    package var stall = Duration.seconds(10)
    /// Within this an answer must have been taken by who asked: else the connection is closed.
    package var answer = Duration.seconds(30)
    /// A kept connection without a request is closed after this: longer than usual proxies keep theirs.
    package var idle = Duration.seconds(75)
    /// After this a connection is closed that a graceful stop has not ended by itself. With the writers' end it stays below ten seconds.
    package var stop = Duration.seconds(7)
    /// After this the process ends, whatever is still under way: what was not answered is sent again.
    package static let hardStop = Duration.seconds(9)
    /// How long `/health/ready` waits for the store before it says no.
    package static let readiness = Duration.seconds(2)

    // MARK: Requests

    /// Bytes of a header block, and of one line of it. A larger one is answered 400 without a document, and its connection closed.
    package static let headerBytes = 16 * 1024
    /// What a connection takes at most beside a body and an answer, a header block that does not end included: with ``connections`` the most
    /// that senders can make the server keep by connecting.
    package static let connectionBytes = 64 * 1024
    /// Bytes of an answer that the system takes before its reader has; it takes twice as much in its own count.
    package static let systemSendBytes = 256 * 1024
    /// Lines of a header block; the same.
    package static let headerFields = 100
    /// Requests of one connection that wait for their answers. Behind them the connection is closed: usual senders wait for each answer, and a
    /// kilobyte can hold fifty requests.
    package static let pipelinedRequests = 100
    /// Bytes of a body that are read and thrown away after its request was refused, so that a sender that reads last still gets its answer.
    package static let discardedBytes = 16 * 1024 * 1024

    // MARK: Memory

    /// Bytes of bodies as they travel, from their arrival until they are answered. At the limit the slowest of those that still arrive is cut
    /// with 408; if none is slower than the newcomer, that one is answered 503.
    package var arrivingBytes = 64 * 1024 * 1024
    /// Bytes of requests taken apart, from then until their group has been committed, see ``bytesPerEvent``. At the limit a request is answered
    /// 503; a project that alone holds more than half while others are active, 429.
    package var heldBytes = 64 * 1024 * 1024
    /// What one event takes in memory beside its bytes: a body of nothing but commas unfolds to many.
    package static let bytesPerEvent = 512
    /// A project counts as active for this long after its last request.
    package static let projectActivity = Duration.seconds(10)
    /// Events at which a group takes no further request; one request alone may have more.
    package static let groupEvents = 5_000
    /// Bytes at which a group takes no further request. Each writer holds one group once more, in the database's form.
    package static let groupBytes = 8 * 1024 * 1024

    /// Requests whose body has come and that wait for their turn to be unpacked, of all projects; a further one is answered 503.
    static let waitingTurns = 2_048
    /// How long one waits for its turn, then it is answered 503: by then most senders have given up.
    static let turnWait = Duration.seconds(30)
    /// Requests that were unpacked in part when others went first, at most; each keeps up to ``EventLimits/maximumDecompressedBodyBytes``, and
    /// as much of rows.
    static let begunTurns = 8
    /// What these keep, at most.
    package static let begunBytes = 2 * begunTurns * EventLimits.maximumDecompressedBodyBytes

    // MARK: Reading

    /// Dry runs at once, on a connection of their own; a further one waits, see ``heavyReadWait``.
    package static let dryRuns = 1
    /// Lists and counts that run at once, each on a connection of its own; one project has one less. A further one waits, see
    /// ``heavyReadWait``.
    package static let heavyReads = 3
    /// How long a heavy question may wait for its turn, then it is answered 503.
    package static let heavyReadWait = Duration.seconds(2)
    /// Bytes of answers to questions that their readers have not taken yet. At the limit a question is answered 503, and at half of it 429 if all
    /// are of its own project.
    package var untakenAnswers = 64 * 1024 * 1024
    /// How long a count may take; then it is answered 422.
    package static let heavyRead = Duration.seconds(10)
    /// After this a list answers with what it has, and where it goes on.
    package static let listRead = Duration.seconds(2)
    /// How long the store may take to find one event by its id.
    package static let shortRead = Duration.seconds(5)
    /// Events of one page of a list.
    package static let pageEvents = 1_000
    /// Bytes of properties at which a page ends early.
    package static let pageBytes = 4 * 1024 * 1024
    /// Events that a reader takes from the store at once.
    package static let stepEvents = 1_000
    /// Events whose properties are looked at for a list of names.
    package static let sampledEvents = 1_000

    /// Events that one step of an export takes from the store, or as many as ``pageBytes`` hold.
    package static let exportEvents = 10_000
    /// Exports of one project that run at once; a further one is answered 429.
    package static let exports = 2
    /// Exports of all projects; a further one is answered 503. Each keeps one step in memory until its reader has taken it.
    package static let allExports = 8
    /// Steps of exports that the store works on at once, on connections of their own: questions never wait for them.
    package static let exportReads = 2
    /// How far an export looks at first, see ``EventReader/stepForward(_:width:until:)``.
    package static let exportWidth = 6

    // MARK: Reports

    /// Names of events that a day's report lists; the rest is one number.
    package static let reportNames = 100
    /// Days of one question for a report.
    package static let reportDays = 400
    /// How often days are looked at that may be closed.
    package static let reportInterval = Duration.seconds(10)
    /// An open day's figures are kept for this long, or for ``reportScans`` times what it took to compute them.
    package static let reportAge = Duration.seconds(5)
    package static let reportScans = 20

    // MARK: Live

    /// Projects whose refusals are kept; the one that was refused something longest ago is forgotten first.
    package static let liveProjects = 50
    /// Refusals that are kept of one project, the latest.
    package static let refusals = 200
    /// Bytes of a refused event that are kept with the reason.
    package static let refusedBytes = 200
    /// Streams of one project at once; a further one is answered 429.
    package static let liveStreams = 16
    /// Rows that one stream carries in a second; how many were left out it says.
    package static let liveRowsPerSecond = 50
    /// How often a stream is looked at.
    package static let liveInterval = Duration.milliseconds(100)
    /// After this without anything else a stream sends a comment, so that what lies between keeps it open.
    package static let liveHeartbeat = Duration.seconds(15)

    // MARK: The store

    /// Attempts at one transaction that collides with others; afterwards the group is answered 503.
    package static let collisions = 8
    /// The same failure of the store is logged again after this.
    package static let logInterval = Duration.seconds(10)
    /// How often the server asks what another one has changed.
    package static let refreshInterval = Duration.seconds(10)
    /// How often the months to come are looked at, and how soon again if that failed.
    package static let upkeepInterval = Duration.seconds(24 * 60 * 60)
    package static let upkeepIntervalAfterFailure = Duration.seconds(10 * 60)
    /// What a refused sender is told to wait, in seconds: long enough to help, short enough for its queue to drain soon after.
    package static let retryAfterSeconds = 1
    /// The shortest write key that is taken off loopback, in bytes: a shorter one can be guessed.
    package static let shortestKeyBytes = 16

    package init() {}
}
