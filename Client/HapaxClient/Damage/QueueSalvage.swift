import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// Reads what can still be read from a damaged queue file, which it does not change.
///
/// What cannot be read for another reason than damage, as with no descriptor left, says nothing about the file: that is an error, and to
/// be tried again. Only where the disk fails the rest is read all the same; see ``trouble``.
struct QueueSalvage {
    private let database: DatabaseQueue
    /// Read instead of the file; removed at the end.
    private let copy: String?
    /// The install the file belonged to; nil if that cannot be read.
    let installID: EventID?
    /// The lowest number of a row that waited, how many did, and how many dead letters there were, by the file's own books; nil if these are
    /// wrong, or commits behind them cannot be read.
    let head: Int64?
    let depth: Int64?
    let letters: Int64?
    /// Whom events concern, what was dropped and which session was open, as far as that can be read.
    let identity: EventQueue.SavedIdentity?
    /// nil if they cannot be read, though events were discarded.
    let drops: DropCounts?
    /// What the queue had still to tell of files that were damaged before.
    let untold: [DamagedFile]
    let session: EventQueue.OpenSession?
    /// Where the file's own row numbers begin.
    private let begin: Int64
    /// So many numbers can be those of rows.
    private let capacity: Int
    var limits = RowSearch.Limits()
    /// The disk failed: another time there may be more to be read.
    private(set) var trouble: DatabaseError?

    /// No row takes less of a page than a fortieth.
    private static let maximumRowsOfAPage = 40
    /// Nobody has so many damaged files.
    private static let maximumFiles = 1_000
    /// Of these the latest, where rows are expected.
    private static let maximumFilesWithRows = 4

    /// - Parameter extent: What is needed of the file if it takes a copy to read it.
    /// - Returns: nil if nothing of a queue can be found in it.
    /// - Throws: ``SalvageFailure`` if it cannot be read now, or takes a copy for which there is no room.
    init?(path: String, _ extent: SalvageCopy.Extent) throws {
        guard FileManager.default.fileExists(atPath: path) else { return nil }
        let older = min((QueueDirectory.number((path as NSString).lastPathComponent) ?? 1) - 1, Self.maximumFiles)
        begin = Int64(older) * EventQueue.rowsPerDamagedFile
        capacity = Int(clamping: Self.size(of: path)) / QueueRoom.pageBytes * Self.maximumRowsOfAPage
        let log = QueueLog(of: path)
        let mended = log?.mended()
        let isCutOff = log?.hidesCommits == true && (mended == nil || log?.isWhole == false)
        // SQLite would remove the log of an empty file.
        let isEmpty = QueueFileHeader(path: path)?.isEmpty == true
        func openAsItIs() throws -> (database: DatabaseQueue, copy: String?)? {
            if mended == nil, !isEmpty, let database = try Self.open(path) { return (database, nil) }
            guard try isEmpty || !Self.isForeign(path) else { return nil }
            if extent == .everything { try Self.requireRoom(for: path) }
            return try Self.openCopy(of: path, withNewFirstPage: true) {
                try SalvageCopy.make(of: path, at: $0, extent, log: mended)
            }
        }
        guard var opened = try openAsItIs() else { return nil }
        if extent == .everything, let pages = Self.mendedPages(of: path, opened.database) {
            let isCopied = opened.copy != nil
            Self.close(opened.database, opened.copy)
            var copied: (database: DatabaseQueue, copy: String?)?
            do {
                try Self.requireRoom(for: path)
                copied = try Self.openCopy(of: path, withNewFirstPage: isCopied) {
                    try SalvageCopy.make(of: path, at: $0, replacing: pages)
                }
            } catch {
                // What can be read without it is taken now, and the rest another time.
                trouble = (error as? SalvageFailure)?.cause as? DatabaseError ?? DatabaseError(resultCode: .SQLITE_IOERR)
            }
            guard let usable = try copied ?? openAsItIs() else { return nil }
            opened = usable
        }
        (database, copy) = opened
        let queue = database
        do {
            let books = try Self.readable {
                try queue.unsafeRead { try Row.fetchOne($0, sql: "SELECT * FROM books") }
            }
            installID = (try? books??.optional("install_id") as Data?).flatMap { EventID(bytes: $0) }
            // Books that do not add up are known to be wrong.
            let sequence = try Self.readable { try queue.unsafeRead { try EventQueue.lastWaitingSequence($0) } } ?? nil
            let counts = isCutOff ? nil : books?.flatMap { try? QueueBooks($0) }.flatMap { $0.lastSequence < sequence ?? 0 ? nil : $0 }
            head = counts?.head
            depth = counts?.depth
            letters = counts?.letters
            identity = try Self.readable { try queue.unsafeRead { try EventQueue.identity($0) } }
            drops = try Self.readable { try queue.unsafeRead { try EventQueue.drops($0) } } ?? (counts?.discarded == 0 ? DropCounts() : nil)
            untold = try Self.readable { try queue.unsafeRead { try DamagedFile.untold($0) } } ?? []
            session = try Self.readable { try queue.unsafeRead { try EventQueue.openSession($0) } } ?? nil
        } catch {
            Self.close(queue, copy)
            throw error
        }
    }

    /// What a file says of its queue, its events apart; nil if nothing can be read.
    ///
    /// - Throws: ``SalvageFailure`` if it cannot be looked at now.
    static func state(of file: String, in directory: QueueDirectory) throws -> QueueSalvage? {
        do {
            return try QueueSalvage(path: directory.path + "/" + file, .state)
        } catch  where error.isTrouble && !error.isDiskFailure {
            throw error
        } catch {
            // The disk fails or is full, which may last: the events are worth more than whom later ones concern.
            return nil
        }
    }

    func close() { Self.close(database, copy) }

    private static func close(_ database: DatabaseQueue, _ copy: String?) {
        try? database.close()
        if let copy { DatabaseFile.remove(copy) }
    }

    private static var looking: Configuration {
        var configuration = Configuration()
        configuration.readonly = true
        configuration.busyMode = DatabaseFile.busyMode
        return configuration
    }

    /// - Returns: nil if SQLite does not find the queue's tables.
    private static func open(_ path: String) throws -> DatabaseQueue? {
        try readable {
            let database = try DatabaseQueue(path: path, configuration: looking)
            do {
                if try database.unsafeRead(FirstPage.hasSchema) { return database }
            } catch {
                try? database.close()
                throw error
            }
            try? database.close()
            return nil
        } ?? nil
    }

    private static func openCopy(
        of path: String, withNewFirstPage isNew: Bool, making make: (String) throws -> Void
    ) throws -> (database: DatabaseQueue, copy: String?)? {
        let copy = QueueDirectory.copy(of: path)
        do {
            let page = isNew ? try FirstPage.new(at: copy) : nil
            try make(copy)
            if let page { try SalvageCopy.replaceFirstPage(of: copy, by: page) }
            if let database = try open(copy) { return (database, copy) }
        } catch {
            DatabaseFile.remove(copy)
            throw error
        }
        DatabaseFile.remove(copy)
        return nil
    }

    /// Inner pages that do not lead to all rows, as they must have been; nil without any. What cannot be read for the moment is read as it is:
    /// who reads it then meets the trouble, and tells.
    private static func mendedPages(of path: String, _ database: DatabaseQueue) -> [UInt32: [UInt8]]? {
        guard
            let roots = try? database.unsafeRead({
                try UInt32.fetchAll($0, sql: "SELECT rootpage FROM sqlite_schema WHERE name IN ('queue', 'dead_letters')")
            }), let pages = try? QueuePages(path: path),
            let repair = try? TreeRepair(roots: roots, count: pages.count, read: pages.page)
        else { return nil }
        return repair.pages.isEmpty ? nil : repair.pages
    }

    /// Somebody else's database, with nothing for us in it.
    private static func isForeign(_ path: String) throws -> Bool {
        let tables = try readable {
            let database = try DatabaseQueue(path: path, configuration: looking)
            defer { try? database.close() }
            return try database.unsafeRead { try String.fetchSet($0, sql: "SELECT name FROM sqlite_schema WHERE type = 'table'") }
        }
        return tables?.isDisjoint(with: ["grdb_migrations", "queue", "dead_letters", "books"]) ?? false
    }

    /// Of the file and its log, in bytes.
    private static func size(of path: String) -> Int64 {
        [path, path + "-wal"].reduce(0) { sum, file in
            sum + (((try? FileManager.default.attributesOfItem(atPath: file))?[.size] as? NSNumber)?.int64Value ?? 0)
        }
    }

    /// The copy must not take the room that the new queue needs to deliver.
    private static func requireRoom(for path: String) throws {
        let size = size(of: path)
        guard let free = EventQueue.freeBytes(path), free < size + size / 4 + Int64(QueueRoom(freeBytes: free).ballastBytes) else { return }
        throw SalvageFailure(cause: DatabaseError(resultCode: .SQLITE_FULL))
    }

    /// - Returns: nil if it is damaged.
    private static func readable<Value>(_ body: () throws -> Value) throws -> Value? {
        do {
            return try body()
        } catch  where error.isTrouble {
            throw SalvageFailure(cause: error)
        } catch {
            return nil
        }
    }

    /// Every row of a table that can be read, most of them once and in order.
    ///
    /// - Parameter body: Returns whether the row is what was stored; if not, its number says nothing.
    /// - Throws: What `body` throws.
    mutating func rows(of table: String, _ body: (Row) throws -> Bool) throws {
        // Without a transaction: its end would fail once a page could not be read.
        try database.unsafeRead { db in
            var search = RowSearch(db, table, limits: limits, capacity: capacity)
            defer { trouble = trouble ?? search.trouble }
            guard let rest = try search.firstLook(body) else { return }
            try search.search(parts(of: table, in: rest, db), body)
        }
    }

    /// What is left after a first look from both ends, in parts that are searched one by one.
    ///
    /// Every number for which SQLite looks on a damaged page fails, and those can be a trillion: behind the last row, and before the first one
    /// behind a file that was damaged before. So the parts grow from where each file's numbers begin, where its rows are.
    private func parts(of table: String, in rest: ClosedRange<Int64>, _ db: Database) -> [RowSearch.Part] {
        let step = EventQueue.rowsPerDamagedFile
        // The last number given; also by the books, should the page be damaged that says so.
        let given = try? Int64.fetchOne(db, sql: "SELECT seq FROM sqlite_sequence WHERE name = ?", arguments: [table])
        let stored = try? Int64.fetchOne(db, sql: "SELECT last_sequence + adopted FROM books")
        let possible = 0...Int64(Self.maximumFiles) * step
        let last = [given, stored.map { $0 &+ begin }].compactMap { $0 }.filter { possible.contains($0) }.max()
        if table == "queue", let head, let depth, let last, (0..<max(4 * depth, limits.expectedPart)).contains(last - head) {
            let expected = (head...last).clamped(to: rest)
            var parts = [RowSearch.Part(numbers: expected, isExpected: true)]
            if rest.lowerBound < expected.lowerBound { parts.append(RowSearch.Part(numbers: rest.lowerBound...expected.lowerBound - 1)) }
            if expected.upperBound < rest.upperBound { parts.append(RowSearch.Part(numbers: expected.upperBound + 1...rest.upperBound)) }
            return parts
        }
        var starts: [Int64] = []
        let file = (last ?? begin) / step
        for number in 0...file {
            starts.append(number * step)
            if number + Int64(Self.maximumFilesWithRows) > file { for size in 0..<40 { starts.append(number * step + (1 << size)) } }
        }
        if let last { starts = starts.filter { $0 <= last } + [last + 1] }
        starts = starts.filter { rest.contains($0) && $0 > rest.lowerBound }
        // The small ones first: rows are at each file's beginning.
        return zip([rest.lowerBound] + starts, starts.map { $0 - 1 } + [rest.upperBound]).map { RowSearch.Part(numbers: $0...$1) }
            .sorted { $0.numbers.count < $1.numbers.count }
    }
}

/// The new queue could not take what was salvaged, or the old one cannot be read now: not the damage that is being worked around.
struct SalvageFailure: Error {
    var cause: any Error
}
