import HapaxModel

/// Every limit of the server: what it protects, and what happens at it. What client and server both obey is in `EventLimits`.
package struct ServerLimits: Sendable {
    // MARK: Connections

    /// Connections at once. At the limit the one that has been idle longest is closed, then the one whose request has been arriving longest, then
    /// the one whose answer has been untaken longest; if all are being answered, the new one. At most what ``reservedDescriptors`` leaves.
    package var connections = 10_000
    /// Descriptors kept for everything else: the store, the log, the listening socket, whatever the system's libraries open.
    package static let reservedDescriptors = 128
    /// Connections that the system has accepted and the server has not; beyond them the system drops new ones, which senders try again.
    package static let backlog = 1_024
    /// How long accepting pauses when the system has no descriptor left; without the pause the event loop would spin.
    package static let acceptPause = Duration.milliseconds(100)

    // MARK: Time

    /// The time for a header block, from the connection or, on a kept one, from its first byte; else 408, and the connection is closed.
    package var header = Duration.seconds(10)
    /// The time for a body, from its header; else 408, and the connection is closed. The rest of a refused body has the same deadline.
    package var body = Duration.seconds(30)
    /// The longest pause within a body; else 408, and the connection is closed.
    package var stall = Duration.seconds(10)
    /// The time for the client to take an answer, or some more of a long one; else the connection is closed.
    package var answer = Duration.seconds(30)
    /// A kept connection without a request is closed after this: longer than usual proxies keep theirs.
    package var idle = Duration.seconds(75)
    /// How long the end of a secure connection waits for the other side's (RFC 8446 §6.1).
    package static let secureClose = Duration.seconds(1)
    /// The largest file that is read as a certificate or a key.
    static let certificateBytes = 1_048_576
    /// How often the server looks whether the files of its certificate have changed.
    package static let certificateInterval = Duration.seconds(10)
    /// How long a graceful stop waits for connections before it closes them, so that with the last commits it takes less than ten seconds.
    package var stop = Duration.seconds(7)
    /// The process ends this long after the signal, whatever is still under way: what was not answered is sent again.
    package static let hardStop = Duration.seconds(9)
    /// How long `/health/ready` waits for the store before it says no.
    package static let readiness = Duration.seconds(2)

    // MARK: Requests

    /// Bytes of a header block, and of one line of it. A larger one is answered 400 without a document, and its connection closed.
    package static let headerBytes = 16 * 1024
    /// Connections of the listener for metrics, and how long one of them may leave its answer without taking some of it.
    static let metricsConnections = 64
    static let metricsAnswer = Duration.seconds(5)
    /// For how long the same text answers requests for metrics.
    static let metricsAge = Duration.seconds(1)
    /// Bytes of an answer that the system's send buffer holds for a slow reader; the system reserves twice as much.
    package static let systemSendBytes = 256 * 1024
    /// Lines of a header block. More are answered as a header block that is too large.
    package static let headerFields = 100
    /// Parameters of one path, and the bytes of one. More are refused: who asks pays nothing for what it costs to read them.
    package static let parameters = 100
    package static let parameterBytes = 1_024
    /// Requests of one connection that wait for their answers. Beyond that the connection is closed: usual senders wait for each answer, and a
    /// kilobyte can hold fifty requests.
    package static let pipelinedRequests = 100
    /// Bytes of a body that are read and thrown away after its request was refused, so that a sender that reads last still gets its answer.
    package static let discardedBytes = 16 * 1024 * 1024

    /// A request whose answer takes longer than this to begin gets a line in the log.
    static let slowRequest = Duration.seconds(1)
    /// Lines about requests in one second; the next one says how many were left out.
    static let accessLinesPerSecond = 10

    /// The least bytes of a body's parts (chunks, packets) on average, once so many of its bytes have come; else 408: each part costs as much as
    /// hundreds of bytes in one.
    static let averagePart = 64
    static let smallParts = 16 * 1024

    // MARK: Memory

    /// Bytes of bodies as they were received, from their arrival until their requests are answered. At the limit the slowest of those that still
    /// arrive is answered 408; if none is slower than the newcomer, that one is answered 503.
    package var arrivingBytes = 64 * 1024 * 1024
    /// Bytes of scanned requests until their group has been committed, see ``bytesPerEvent``. At the limit a request is answered 503; if its
    /// project would hold more than half while others are active, 429.
    package var heldBytes = 64 * 1024 * 1024
    /// Memory that one event takes in addition to its bytes: a small body can hold very many tiny events.
    package static let bytesPerEvent = 512
    /// Bytes that an install's book takes while its request is committed: it is read for each. A long one takes some times as much, so a group has
    /// so many books as if each were as many events.
    static let bytesPerBook = 4 * 1024
    static let eventsPerBook = 10
    /// Bytes of a reason that an install gives; what is longer is cut.
    static let reasonBytes = 64
    /// A project counts as active for this long after its last request.
    package static let projectActivity = Duration.seconds(10)
    /// Events at which a group takes no further request; one request alone may have more.
    package static let groupEvents = 5_000
    /// Bytes at which a group takes no further request. Each writer also holds a copy of its group, in the database's form.
    package static let groupBytes = 8 * 1024 * 1024

    /// How many seconds' worth of its limit a project may send at once, after it has sent less.
    static let rateBurst = Duration.seconds(10)
    /// A larger body is refused unread while its project owes events.
    static let smallBody = 64 * 1024
    /// The longest wait that a project beyond its limit is given, in seconds: about as long as a client waits at most.
    static let longestRetryAfter = 300

    /// Requests of all projects whose body has arrived and waits for its turn to be unpacked; a further one is answered 503.
    static let waitingTurns = 2_048
    /// How long a request waits for its turn before it is answered 503: by then most senders have given up.
    static let turnWait = Duration.seconds(30)
    /// The most requests that wait, unpacked in part, while others go first; each keeps up to ``EventLimits/maximumDecompressedBodyBytes``, and
    /// as many bytes of rows.
    static let begunTurns = 8
    /// Among so many turns senders without a known key outside their bodies are shared out, by address: beside projects each is one more. One address delays those alone that share its
    /// turn.
    static let strangers: UInt32 = 8
    /// Bytes of bodies that wait until the key in them has been looked for; a further one is answered 503.
    static let strangersBytes = 16 * 1024 * 1024
    /// The most bytes that these requests keep.
    package static let begunBytes = 2 * begunTurns * EventLimits.maximumDecompressedBodyBytes

    // MARK: Reading

    /// Dry runs at once, on a connection of their own; a further one waits, see ``heavyReadWait``.
    package static let dryRuns = 1
    /// Lists, counts and reports that run at once, each on a connection of its own; one project may have one less. A further one waits, see
    /// ``heavyReadWait``.
    package static let heavyReads = 3
    /// How long a question or a dry run waits for its turn before it is answered 503.
    package static let heavyReadWait = Duration.seconds(2)
    /// Bytes of answers that their clients have not taken yet. At the limit a question is answered 503; if its project alone would hold more
    /// than half, 429.
    package var untakenAnswers = 64 * 1024 * 1024
    /// How long a count or a report may take before it is answered 422.
    package static let heavyRead = Duration.seconds(10)
    /// The time after which a list answers with what it has found, and where to go on.
    package static let listRead = Duration.seconds(2)
    /// How long the store may take to find one event by its id.
    package static let shortRead = Duration.seconds(5)
    /// Users that one search by the beginning of their ids gives.
    package static let foundUsers = 100
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
    /// The width of an export's first step, see ``EventReader/stepForward(_:width:until:)``.
    package static let exportWidth = 6

    // MARK: Reports

    /// Event names that a day's report lists; the events of all others are one number.
    package static let reportNames = 100
    /// The most entries of the audit log in one answer.
    package static let auditEntries = 1_000
    /// The most days in one report.
    package static let reportDays = 400
    /// How long one statement may take that the server needs within seconds: keys, projects, the clock.
    static let own = Duration.seconds(8)
    /// How long one statement of a commit may take, and how long its answer.
    static let commit = Duration.seconds(20)
    package static let commitAnswer = Duration.seconds(30)
    /// How long a change under the role that owns the tables may take: a migration takes as long as the table is large.
    static let owner = Duration.seconds(6 * 60 * 60)
    /// How long one statement of the server's own work may take: closing a day, or a search for an erasure.
    package static let ownWork = Duration.seconds(60 * 60)
    package static let adminWork = Duration.seconds(60)
    /// Erasures in one answer.
    package static let erasures = 1_000
    /// How often the server looks for days that can be closed.
    package static let reportInterval = Duration.seconds(10)
    /// Computed figures are kept for this long, or for ``reportScans`` times as long as it took to compute them, whichever is longer.
    package static let reportAge = Duration.seconds(5)
    package static let reportScans = 20
    /// Answers to questions of the analysis that are kept, of each kind, and how long final ones are: rows of theirs can still be removed.
    package static let keptAnswers = 50
    package static let finalAge = Duration.seconds(60)
    /// The most days whose hours are given.
    package static let hourlyDays = 31
    /// The most values of a property that are given.
    package static let brokenValues = 1_000
    /// Characters of a value that is given by itself, more than PostgreSQL takes to write any number; longer ones count among the others.
    package static let valueCharacters = 1_100
    /// The most properties that a question filters by.
    package static let propertyFilters = 8

    // MARK: Live

    /// Projects whose refusals are kept; the project without a stream whose last refusal is oldest is forgotten first.
    package static let liveProjects = 50
    /// How many of a project's latest refusals are kept.
    package static let refusals = 200
    /// Bytes of a refused event that are kept with the reason.
    package static let refusedBytes = 200
    /// Streams of one project at once; a further one is answered 429.
    package static let liveStreams = 16
    /// Rows that one stream carries in a second; it reports how many were left out.
    package static let liveRowsPerSecond = 50
    /// How often a stream sends what has gathered.
    package static let liveInterval = Duration.milliseconds(100)
    /// A stream that has sent nothing for this long sends a comment, and an export a space, so that proxies keep it open.
    package static let liveHeartbeat = Duration.seconds(15)

    // MARK: The store

    /// Retries of one group whose transactions collide with others; afterwards it is answered 503.
    package static let collisions = 8
    /// The same failure of the store is logged again after this.
    package static let logInterval = Duration.seconds(10)
    /// How often the server asks what another one has changed.
    package static let refreshInterval = Duration.seconds(10)
    /// How often it reads which projects and keys there are: a key that was revoked is refused so much later at most, and a stream of it cut.
    package static let settingsInterval = Duration.seconds(2)
    /// How often the metrics' figures of the store are read, and whether it is ready.
    static let figuresInterval = Duration.seconds(60)
    static let watchInterval = Duration.seconds(10)
    /// How often upkeep makes partitions for future months, and how soon it tries again after a failure.
    package static let upkeepInterval = Duration.seconds(24 * 60 * 60)
    package static let upkeepIntervalAfterFailure = Duration.seconds(10 * 60)
    /// `Retry-After` of a refusal, in seconds: long enough to help, short enough for the sender's queue to drain soon after.
    package static let retryAfterSeconds = 1
    /// The shortest key that is accepted off loopback, in bytes: a shorter one can be guessed.
    package static let shortestKeyBytes = 16

    package init() {}

    /// Gives senders and readers so many times as long for whatever a connection does; a graceful stop takes no longer.
    package mutating func multiplyDeadlines(by factor: Int) {
        for deadline in [\Self.header, \.body, \.stall, \.answer, \.idle] { self[keyPath: deadline] *= factor }
    }
}
