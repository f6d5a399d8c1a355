/// How a queue divides the room that its disk has, so that it can still shrink when the disk is full.
///
/// A full disk makes SQLite refuse the DELETE of delivered rows as well: their pages go through the write-ahead log first, and emptying the
/// log can make the file grow (https://www.sqlite.org/wal.html#avoiding_excessively_large_wal_files). So the log is capped, and a ballast
/// file holds room for one log and what emptying it can need.
struct QueueRoom: Hashable, Sendable {
    static let pageBytes = 4_096
    private static let largestLog = 4 * 1024 * 1024
    private static let smallestLog = 64 * 1024

    /// The log is emptied from here on; one transaction may take it beyond that.
    let logBytes: Int

    /// - Parameter freeBytes: Of the disk; nil if that is not known.
    init(freeBytes: Int64?) {
        let share = (freeBytes ?? .max) / 16
        logBytes = Int(min(max(share, Int64(Self.smallestLog)), Int64(Self.largestLog)))
    }

    var logPages: Int { logBytes / Self.pageBytes }

    /// Events of one transaction together.
    var groupBytes: Int { min(logBytes, 1024 * 1024) }

    /// A log, the pages that emptying it can add to the file, and a little for the shared memory file.
    var ballastBytes: Int { 2 * logBytes + 64 * 1024 }

    /// Whether a file is to be written anew, without its free pages: what it holds has to be so little that nobody waits for long, and what it
    /// gives back to be worth a log.
    ///
    /// - Parameter isTight: The ballast has been given up: then each page is.
    func isWorthRewriting(freePages: Int, filePages: Int, isTight: Bool) -> Bool {
        filePages - freePages <= logPages && freePages >= (isTight ? 1 : logPages)
    }
}
