import Foundation
import HapaxClient
import HapaxModel

/// A file's events, line by line, as they are: raw bytes, own ids, own times, no install.
actor ImportSource: BatchSource {
    /// Where lines go that no server would store, or that the server refused. Durable on return; what it throws says why not.
    typealias Bury = @Sendable ([DeadLetter]) throws -> Void
    /// Told after each settled batch, and from time to time while lines are read.
    typealias Settled = @Sendable (ImportCounts) -> Void

    /// Told how far all is settled.
    typealias SaveCheckpoint = @Sendable (ImportCheckpoint) -> Void

    private struct Waiting {
        var event: OutgoingEvent
        /// Of all before its line.
        var before: ImportFingerprint
    }

    private let executor = BlockingExecutor(label: "hapax.import")
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    private var reader: LineReader
    private let now: @Sendable () -> Int64
    private let bury: Bury
    private let settled: Settled
    private let saveCheckpoint: SaveCheckpoint
    /// Told when the file cannot be read or a letter not be kept: trying again would not help.
    private let failed: @Sendable (String) -> Void
    /// Gives the same line of the same file the same name, so that it is buried once however often it is read.
    private let letterNames: String?

    private var waiting: [Waiting] = []
    private var reachedEnd = false
    /// What ended the import. Lines that were read behind the last settled one are neither sent nor kept then: no place behind them is noted.
    private var failure: (any Error)?
    /// Of all up to the last line read.
    private(set) var read: ImportFingerprint
    private var readLines: Int64
    /// Lines before the checkpoint that became dead letters, and those behind it.
    private var deadBefore: Int
    private var deadLines: [Int64] = []
    /// Up to where bad lines are in the dead letters, or were before somebody purged them.
    private var kept: ImportCheckpoint.Place
    /// A file ended in the middle of a line, which is still to come.
    private(set) var isUnfinished = false
    private(set) var counts = ImportCounts()
    /// Lines that were read and not settled: what cannot be read again has to be given once more.
    var unsettledLines: Int { counts.lines - counts.settled + reader.unread }

    /// - Parameters:
    ///   - start: Where the descriptor stands.
    ///   - fingerprint: Of what lies before.
    ///   - letterNames: The file's name for its dead letters; nil for what cannot be read again.
    init(
        descriptor: Int32, start: ImportCheckpoint, after fingerprint: ImportFingerprint, letterNames: String?,
        isStopped: @escaping @Sendable () -> Bool,
        now: @escaping @Sendable () -> Int64, bury: @escaping Bury, settled: @escaping Settled,
        saveCheckpoint: @escaping SaveCheckpoint, failed: @escaping @Sendable (String) -> Void
    ) {
        reader = LineReader(descriptor: descriptor, after: fingerprint, lines: start.lines, isStopped: isStopped)
        read = fingerprint
        readLines = start.lines
        deadBefore = start.deadLettered
        kept = start.kept
        self.letterNames = letterNames
        self.now = now
        self.bury = bury
        self.settled = settled
        self.saveCheckpoint = saveCheckpoint
        self.failed = failed
        counts.offset = start.offset
    }

    func nextBatch(limit: Int, maximumBytes: Int, skipping: Int) async throws -> SourceBatch {
        if let failure { throw failure }
        try fill(to: limit + skipping, behind: skipping)
        var events: [OutgoingEvent] = []
        var bytes = 0
        for line in waiting.dropFirst(skipping).prefix(limit) {
            bytes += line.event.bytes.count + 1
            if bytes > maximumBytes, !events.isEmpty { break }
            events.append(line.event)
        }
        if events.isEmpty { checkpoint() }
        return SourceBatch(events: events)
    }

    func settle(_ settlements: [Settlement]) async throws {
        var letters: [DeadLetter] = []
        for settlement in settlements {
            if case .deadLetter(let reason, let detail) = settlement.fate {
                letters.append(
                    letter(
                        line: settlement.event.row, id: settlement.event.id, reason: reason, detail: detail, bytes: settlement.event.bytes))
            }
        }
        try keep(letters)
        for settlement in settlements {
            if case .deadLetter = settlement.fate { deadLines.append(settlement.event.row) }
        }
        let rows = Set(settlements.map(\.event.row))
        waiting.removeAll { rows.contains($0.event.row) }
        for settlement in settlements {
            switch settlement.fate {
            case .stored: counts.stored += 1
            case .duplicate: counts.duplicates += 1
            case .deadLetter: counts.deadLettered += 1
            }
        }
        checkpoint()
    }

    /// Reads until so many events wait or the file ends. Bad lines are buried before anything behind them is sent.
    ///
    /// Fewer events are enough, if there is one behind the skipped ones, where nothing more has come yet, as of a pipe, or where bad lines
    /// follow that fill the queue: what waits in front of them is to be settled first.
    private func fill(to count: Int, behind skipped: Int) throws {
        var letters: [DeadLetter] = []
        var lettered: [Int64] = []
        var bytes = 0
        func keepLetters() throws {
            if letters.isEmpty { return }
            try keep(letters)
            deadLines += lettered
            counts.deadLettered += letters.count
            (letters, lettered, bytes) = ([], [], 0)
            // What the user exports and purges, because no more can be kept, must not come again.
            kept = ImportCheckpoint.Place(offset: read.offset, lines: readLines, fingerprint: read.text)
            checkpoint()
        }
        var toldOffset = read.offset
        while waiting.count < count, !reachedEnd {
            let isEnough = waiting.count > skipped
            guard let line = try nextLine(waits: !isEnough && letters.isEmpty) else {
                if reader.isWaiting {
                    try keepLetters()
                    if isEnough { break }
                    continue
                }
                reachedEnd = true
                break
            }
            if isStillToCome(line) {
                isUnfinished = true
                reachedEnd = true
                break
            }
            let before = read
            read = reader.fingerprint
            readLines = line.number
            if read.offset - toldOffset >= Self.bytesPerReport {
                toldOffset = read.offset
                counts.read = read.offset
                settled(counts)
            }
            if line.isBlank { continue }
            counts.lines += 1
            let scanned = EventScanner.scan(line.bytes[...])
            if let id = scanned.id, scanned.problem == nil, !line.isCut {
                waiting.append(Waiting(event: OutgoingEvent(row: line.number, id: id, bytes: Array(scanned.wire)), before: before))
            } else {
                let problem =
                    line.isCut
                    ? EventProblem(.eventTooLarge, detail: "the line is longer than \(LineReader.maximumLineBytes) bytes and was cut")
                    : scanned.problem ?? EventProblem(.missingID, detail: "event_id is missing")
                if line.number <= kept.lines {
                    deadLines.append(line.number)
                    counts.deadLettered += 1
                    continue
                }
                lettered.append(line.number)
                letters.append(
                    letter(line: line.number, id: scanned.id, reason: problem.reason.rawValue, detail: problem.detail, bytes: line.bytes))
                bytes += line.bytes.count
                // Of a file that holds no events at all, memory holds only so much.
                if letters.count == Self.lettersPerBurial || bytes >= Self.bytesPerBurial {
                    try keepLetters()
                    if waiting.count > skipped { break }
                }
            }
        }
        try keepLetters()
    }

    private static let lettersPerBurial = 2_000
    private static let bytesPerBurial = 1024 * 1024
    private static let bytesPerReport: Int64 = 1024 * 1024

    /// Some editors write it in front of UTF-8 (RFC 3629 §6); it is no part of the first event.
    private static let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

    /// Whether somebody is still writing this line of a file. A whole object is not waited for: no more can come but its end of line.
    private func isStillToCome(_ line: LineReader.Line) -> Bool {
        guard letterNames != nil, !line.isTerminated else { return false }
        if line.isCut { return true }
        if line.isBlank || EventScanner.scan(line.bytes[...]).problem == nil { return false }
        return (try? JSONSerialization.jsonObject(with: Data(line.bytes))) == nil
    }

    private func nextLine(waits: Bool) throws -> LineReader.Line? {
        do throws(LineReader.Failure) {
            guard var line = try reader.next(waits: waits) else { return nil }
            if line.number == 1, line.bytes.starts(with: Self.byteOrderMark) { line.bytes.removeFirst(Self.byteOrderMark.count) }
            return line
        } catch {
            failure = error
            failed("the file cannot be read: \(String(cString: strerror(error.code)))")
            throw error
        }
    }

    private func keep(_ letters: [DeadLetter]) throws {
        do {
            if !letters.isEmpty { try bury(letters) }
        } catch {
            failure = error
            failed("\(error)")
            throw error
        }
    }

    private func letter(line: Int64, id: EventID?, reason: String, detail: String, bytes: [UInt8]) -> DeadLetter {
        let detail = "line \(line)" + (detail.isEmpty ? "" : ": " + detail)
        var letter = DeadLetter(number: 0, eventID: id, reason: reason, detail: detail, time: now(), event: bytes)
        letter.origin = .nobody
        if let letterNames {
            // By all that it says: the same line refused again is the same letter, and another line in its place is another one.
            let key = "\(line) \(reason) \(ImportFingerprint.text(of: bytes))"
            letter.originNumber = Int64(bitPattern: EventID.derived(name: letterNames, key: key).low)
        }
        return letter
    }

    /// Everything before the first line that waits is settled.
    private func checkpoint() {
        let (settledBytes, lines) = waiting.first.map { ($0.before, $0.event.row - 1) } ?? (read, readLines)
        counts.offset = max(counts.offset, settledBytes.offset)
        deadBefore += deadLines.count { $0 <= lines }
        deadLines.removeAll { $0 <= lines }
        saveCheckpoint(
            ImportCheckpoint(
                offset: settledBytes.offset, lines: lines, deadLettered: deadBefore, fingerprint: settledBytes.text, kept: kept))
        settled(counts)
    }
}

extension LineReader.Line {
    /// A line of which bytes are missing may hold anything there.
    fileprivate var isBlank: Bool { !isCut && bytes.allSatisfy { $0 == 0x20 || $0 == 0x09 || $0 == 0x0D } }
}

/// How far an import is.
struct ImportCounts: Hashable, Sendable {
    /// Lines read in this run that are not blank.
    var lines = 0
    var stored = 0
    var duplicates = 0
    var deadLettered = 0
    /// Settled bytes of the file.
    var offset: Int64 = 0
    /// Bytes read, as far as that has been told.
    var read: Int64 = 0

    var settled: Int { stored + duplicates + deadLettered }
}
