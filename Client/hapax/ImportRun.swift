import Dispatch
import Foundation
import HapaxClient
import HapaxModel

/// What an import has come to so far.
struct ImportCounts: Hashable, Sendable {
    /// Behind the last line that is stored or rejected.
    var offset: Int64 = 0
    var lines = 0
    /// What they hold: events, and lines of which no event can be made.
    var records = 0
    /// Of these, lines of which no event can be made.
    var rejected = 0
    var stored = 0
    var duplicates = 0
    var deadLettered = 0

    var settled: Int { stored + duplicates + deadLettered + rejected }
}

/// One import from its first line to its end: lines into the queue, a chunk at a time, and from there to the server.
final class ImportRun: Sendable {
    enum Ending: Sendable {
        case complete
        /// The last line is not whole: somebody is still writing it.
        case unfinished(Int64)
        case signal(Int32)
        /// What waits is in the queue.
        case undelivered(String)
        /// The file, the queue or the rejected lines cannot be read or written.
        case failed(String)
    }

    private let client: OpenClient
    private let descriptor: Int32
    /// nil for what cannot be read again.
    private let path: String?
    private let destination: EventID
    let rejectedPath: String
    private let progress: ImportProgress
    private let giveUpAfter: Duration?
    /// nil for a file of lines.
    private let csv: CSVMapping.Options?
    private let stop = Locked<Ending?>(nil)
    private let signals = Locked<[any DispatchSourceProtocol]>([])
    /// Why the first lines were rejected.
    let reasons = Locked<[String]>([])
    /// Of the rows that this run has read.
    let findings = Locked(CSVFindings())
    let start: ImportNote
    /// Events of the lines before ``start`` that are in the dead letters.
    let deadLetteredBefore: Int
    /// Why an import that was interrupted does not go on where it stopped.
    let startsOver: String?

    /// Events that wait at most before the next lines are read.
    private static let maximumWaiting = 2_000
    private static let chunkLines = 500
    private static let chunkBytes = 400 * 1024

    /// - Parameter rejectedPath: Where lines go of which no event can be made.
    init(
        _ client: OpenClient, descriptor: Int32, path: String?, rejectedPath: String, destination: EventID, giveUpAfter: Duration?,
        csv: CSVMapping.Options?
    ) {
        // What a record is depends on the options: a place counts for the same ones.
        let destination =
            csv.map { .derived(name: "\(destination)", key: "\($0) \(Self.header(of: descriptor))") } ?? destination
        (self.client, self.descriptor, self.path, self.destination, self.csv) = (client, descriptor, path, destination, csv)
        (self.rejectedPath, self.giveUpAfter) = (rejectedPath, giveUpAfter)
        var (start, deadLettered) = (ImportNote(), 0)
        do {
            if let path, let found = try ImportNote.read(path, descriptor: descriptor, destination: destination) {
                let lines = try ImportedLines(client, found.installs)
                guard lines.areWhole else { throw ImportNote.Unusable.ofAnotherQueue }
                guard lseek(descriptor, off_t(found.offset), SEEK_SET) >= 0 else {
                    throw StorageFailure(POSIXError(.init(rawValue: errno) ?? .EIO))
                }
                (start, deadLettered) = (found, Int(lines.deadLettered))
            }
            startsOver = nil
        } catch let error as ImportNote.Unusable {
            startsOver = error.reason
        } catch {
            startsOver = ImportNote.Unusable.unreadable(StorageFailure(error)).reason
        }
        start.noteInstall(of: client)
        (self.start, deadLetteredBefore) = (start, deadLettered)
        var status = stat()
        progress = ImportProgress(size: path != nil && fstat(descriptor, &status) == 0 ? Int64(status.st_size) : nil)
    }

    /// Returns when all is delivered, or something ends it early. What is stored in the queue by then stays there.
    func finish() async -> (counts: ImportCounts, ending: Ending) {
        let timer = watch()
        progress.start()
        progress.explain { [client, stop] in stop.withLock { $0 == nil } ? client.latestFailure : nil }
        var counts = ImportCounts(offset: start.offset)
        let ending = await run(&counts)
        timer?.cancel()
        progress.update(counts)
        progress.finish()
        let told = stop.withLock { $0 } ?? ending
        if case .complete = told, let path {
            do { try ImportNote.remove(path) } catch {
                return (counts, .failed("all is delivered, but \(ImportNote.path(of: path)) cannot be removed: \(StorageFailure(error))"))
            }
        }
        return (counts, told)
    }

    private func run(_ counts: inout ImportCounts) async -> Ending {
        var note = start
        do {
            var lines = LineReader(
                descriptor: descriptor, after: start.offset, lines: start.lines, encoding: csv?.encoding ?? .utf8, isStopped: isStopped)
            let csv = try mapping(&lines)
            // The names of the columns are none of the events.
            if csv != nil, start.offset == 0 { note.lines = lines.count }
            if try isConsentPending { return .undelivered(Self.consentPending) }
            var reader = RecordReader(lines, csv: csv)
            try truncateRejected()
            var (isAtEnd, mustWait) = (false, false)
            while !isAtEnd {
                var chunk = ImportChunk()
                while chunk.lines < Self.chunkLines, chunk.bytes < Self.chunkBytes {
                    guard let line = try reader.next(waits: mustWait && chunk.lines == 0) else {
                        isAtEnd = !reader.isWaiting
                        break
                    }
                    guard try chunk.take(line, csv) else {
                        guard try await store(chunk, &note, &counts) else { return .undelivered(Self.consentPending) }
                        return await deliver(&counts, downTo: 0) ?? .unfinished(line.number)
                    }
                }
                // What has come is sent before anybody waits for more.
                mustWait = reader.isWaiting
                guard try await store(chunk, &note, &counts) else { return .undelivered(Self.consentPending) }
                if let ending = await deliver(&counts, downTo: isAtEnd || mustWait ? 0 : Self.maximumWaiting) { return ending }
            }
            return await deliverLeftovers(&counts) ?? check(note.installs)
        } catch let failure as CSVMapping.Failure {
            return .failed(failure.reason)
        } catch let failure as LineReader.Failure {
            return .failed("the file cannot be read: \(String(cString: strerror(failure.code)))")
        } catch let failure as StorageFailure {
            return .failed("the queue cannot be written: \(failure)")
        } catch {
            return .failed("\(rejectedPath) cannot be written: \(StorageFailure(error))")
        }
    }

    /// The check sum of a file's first two lines, of which one names the columns; 0 of what has none yet.
    private static func header(of descriptor: Int32) -> UInt32 {
        var bytes = [UInt8](repeating: 0, count: LineReader.maximumLineBytes)
        let count = max(pread(descriptor, &bytes, bytes.count, 0), 0)
        let lines = bytes[..<count].split(separator: 0x0A, maxSplits: 2, omittingEmptySubsequences: false).prefix(2)
        return Array(lines.joined()).withUnsafeBytes { CheckSum.crc32($0) }
    }

    private var isStopped: @Sendable () -> Bool { { [stop] in stop.withLock { $0 != nil } } }

    /// - Parameter lines: What an import begins with; behind the header then, if it begins with that.
    private func mapping(_ lines: inout LineReader) throws -> CSVMapping? {
        guard let csv else { return nil }
        guard start.offset > 0 else { return try CSVMapping.reading(&lines, csv) }
        lseek(descriptor, 0, SEEK_SET)
        var first = LineReader(descriptor: descriptor, encoding: csv.encoding, isStopped: isStopped)
        let mapping = try CSVMapping.reading(&first, csv)
        lseek(descriptor, off_t(start.offset), SEEK_SET)
        return mapping
    }

    /// A file's events have users of their own, whom the directory's decision does not concern; but while that is to come, nothing is sent.
    private var isConsentPending: Bool { get throws { try client.directory.consent == .pending } }

    private static let consentPending =
        "the user's consent is pending, and nothing is sent before it: run the import again after hapax identity opt-in or opt-out"

    /// Durable on return, through a power cut: then the place behind is noted.
    ///
    /// - Returns: Whether the user's consent lets it go on; if not, nothing was stored.
    private func store(_ chunk: ImportChunk, _ note: inout ImportNote, _ counts: inout ImportCounts) async throws -> Bool {
        guard chunk.lines > 0 else { return true }
        guard try !isConsentPending else { return false }
        if chunk.rejectedLines > 0 { note.rejectedBytes = try append(chunk.rejected) }
        let stored = try client.store(chunk.events)
        counts.duplicates += stored.known
        counts.deadLettered += stored.deadLettered
        counts.rejected += chunk.rejectedLines
        reasons.withLock { $0 += chunk.reasons.prefix(ImportChunk.toldReasons - $0.count) }
        let now = SystemClock().unixMilliseconds
        findings.withLock { findings in
            findings += chunk.findings
            findings.future += chunk.events.count { $0.time > now }
        }
        counts.lines += chunk.lines
        counts.records += chunk.events.count + chunk.rejectedLines
        counts.offset = chunk.end
        note.noteInstall(of: client)
        (note.offset, note.lines, note.rejected) = (chunk.end, note.lines + Int64(chunk.lines), note.rejected + chunk.rejectedLines)
        progress.update(counts)
        // Without it the next run begins farther ahead, and the server knows what it has.
        if let path { try? note.write(path, descriptor: descriptor, destination: destination) }
        return true
    }

    /// - Returns: nil if so few wait now.
    private func deliver(_ counts: inout ImportCounts, downTo waiting: Int) async -> Ending? {
        while true {
            let step = await client.deliver(downTo: waiting)
            counts.stored += step.counts.stored
            counts.duplicates += step.counts.duplicates
            counts.deadLettered += step.counts.deadLettered
            progress.update(counts)
            switch step.next {
            case .more: continue
            case .drained: return nil
            default: return .undelivered(step.failure?.described(step.detail) ?? "events wait")
            }
        }
    }

    /// An interrupted run may have stored events in a file that nobody owns now.
    private func deliverLeftovers(_ counts: inout ImportCounts) async -> Ending? {
        guard let look = await client.finalFlush(within: .seconds(1_000_000)).leftovers else { return nil }
        counts.stored += look.counts.stored
        counts.duplicates += look.counts.duplicates
        counts.deadLettered += look.counts.deadLettered
        return look.failure.map { .undelivered($0.described(client.latestDetail)) }
    }

    /// Delivered is only what each file that was given lines has settled; the counts alone hold events of others as well.
    private func check(_ installs: [EventID: ImportNote.Before]) -> Ending {
        let lines: ImportedLines
        do throws(StorageFailure) { lines = try ImportedLines(client, installs) } catch {
            return .failed("whether all is delivered is not known: the queue cannot be read: \(error); run the import again")
        }
        guard lines.areWhole else {
            // Its note is not believed any more.
            return .undelivered(
                "a queue file that held some of the lines was damaged, purged or taken by another process; run the import again: it begins at the first line, and each event is stored once"
            )
        }
        return lines.waiting == 0 ? .complete : .undelivered("\(lines.waiting) events wait")
    }

    // MARK: - Rejected lines

    /// An interrupted import may have written lines behind the place that it noted.
    private func truncateRejected() throws {
        var status = stat()
        guard start.rejectedBytes > 0, stat(rejectedPath, &status) == 0, status.st_size > start.rejectedBytes else { return }
        if truncate(rejectedPath, off_t(start.rejectedBytes)) != 0, errno != ENOENT { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
    }

    /// - Returns: The file's length.
    private func append(_ bytes: [UInt8]) throws -> Int64 {
        let file = open(rejectedPath, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        defer { close(file) }
        if let failure = Terminal.attempt(bytes, on: file) { throw POSIXError(.init(rawValue: failure) ?? .EIO) }
        guard fsync(file) == 0 else { throw POSIXError(.init(rawValue: errno) ?? .EIO) }
        return Int64(lseek(file, 0, SEEK_END))
    }

    // MARK: - Ending early

    /// The first signal lets what is under way end; on a disk that hangs it never does, so that a second one ends the process.
    ///
    /// - Returns: What ends the run when nothing is delivered for too long.
    private func watch() -> (any DispatchSourceProtocol)? {
        // Not the common threads: those may all wait for the disk.
        let queue = DispatchQueue(label: "hapax.signals")
        for number in [SIGINT, SIGTERM] {
            // The default action would end the process before the source hears of it.
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
            source.setEventHandler { [weak self, stop] in
                if case .signal = stop.withLock({ $0 }) { _exit(128 + number) }
                self?.end(.signal(number))
            }
            source.resume()
            signals.withLock { $0.append(source) }
        }
        guard let giveUpAfter else { return nil }
        let timer = DispatchSource.makeTimerSource(queue: .global())
        timer.schedule(deadline: .now() + .seconds(1), repeating: .seconds(1))
        timer.setEventHandler { [weak self] in
            guard let self, progress.quiet >= giveUpAfter else { return }
            let why = client.latestFailure.map { ": " + $0 } ?? ""
            end(.undelivered("nothing was delivered for \(giveUpAfter.components.seconds) seconds\(why)"))
        }
        timer.resume()
        return timer
    }

    private func end(_ ending: Ending) {
        let isFirst = stop.withLock { stop in
            defer { stop = stop ?? ending }
            return stop == nil
        }
        if isFirst { Task { await client.stopDelivering() } }
    }
}
