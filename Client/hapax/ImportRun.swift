import Dispatch
import Foundation
import HapaxClient
import HapaxModel

/// One import from its first line to its end, with what can end it early: a signal, patience, a server that refuses.
final class ImportRun: Sendable {
    struct Result: Sendable {
        var counts: ImportCounts
        var isComplete: Bool
        /// The file or the queue could not be read or written.
        var isDamaged: Bool
        var failure: String?
        /// Lines that were read from what cannot be read again, and are not settled.
        var gone = 0
        var signal: Int32?
        var resumedAfterLine: Int64
        /// By the part that was imported before.
        var deadLetteredBefore: Int
    }

    private let descriptor: Int32
    private let path: String?
    private let source: ImportSource
    private let delivery: Delivery<ImportSource>
    private let transport: any EventTransport
    private let progress: ImportProgress
    private let giveUpAfter: Duration?
    private let start: ImportCheckpoint
    private let checkpointPath: String?
    private let letters: ImportLetters
    private let ended: Locked<ImportEnding>

    /// - Parameter path: nil for what cannot be read again.
    /// - Throws: ``StartError``; `POSIXError` if it is to begin at the first line and what says otherwise cannot be removed.
    init(
        descriptor: Int32, path: String?, configuration: EventClient.Configuration, restart: Bool, giveUpAfter: Duration?
    ) throws {
        self.descriptor = descriptor
        self.path = path
        let endpoint = try configuration.endpoint()
        let clock = SystemClock()
        let name = path.flatMap { ImportCheckpoint.name(descriptor: descriptor, path: $0, endpoint: endpoint) }
        let checkpointPath = name.map { ImportCheckpoint.path(queue: configuration.queueDirectory, name: $0) }
        var start = ImportCheckpoint()
        var fingerprint = ImportFingerprint()
        // At once: this run may end before it has settled anything, and the next one must not go on where one before it stopped.
        if let checkpointPath, restart { try ImportCheckpoint.remove(path: checkpointPath) }
        if let checkpointPath, let found = ImportCheckpoint.load(path: checkpointPath, descriptor: descriptor),
            lseek(descriptor, off_t(found.checkpoint.offset), SEEK_SET) >= 0
        {
            (start, fingerprint) = found
        }
        // Takes its room while there is some.
        if let checkpointPath { try? start.save(path: checkpointPath) }

        var status = stat()
        let size = name != nil && fstat(descriptor, &status) == 0 ? Int64(status.st_size) : nil
        let progress = ImportProgress(size: size)
        let ended = Locked(ImportEnding())
        let letters = ImportLetters(configuration: configuration, endpoint: endpoint)
        let transport = SystemTransport.make()
        source = ImportSource(
            descriptor: descriptor, start: start, after: fingerprint, letterNames: name,
            isStopped: { ended.withLock { $0.reason != nil } }, now: { clock.unixMilliseconds }, bury: { try letters.keep($0) },
            settled: { progress.update($0) },
            saveCheckpoint: { checkpoint in
                // Without it the next run begins at the first line, and the server knows what it has.
                if let checkpointPath { try? checkpoint.save(path: checkpointPath) }
            },
            failed: { text in
                _ = ended.withLock { $0.stop(.damage(text)) }
                transport.close()
            })
        delivery = Delivery(source: source, endpoint: endpoint, transport: transport, clock: clock)
        progress.explain { [weak delivery] in
            // What ends it is told at the end.
            ended.withLock { $0.reason == nil } ? delivery?.latestState.failure.map { "\($0)" } : nil
        }
        self.transport = transport
        self.progress = progress
        self.letters = letters
        self.ended = ended
        self.start = start
        self.checkpointPath = checkpointPath
        self.giveUpAfter = giveUpAfter
    }

    func finish() async -> Result {
        let watchers = watch()
        progress.start()
        let ending = await delivery.deliverAll()
        let isDrained = ending == .drained && ended.withLock { $0.drained() }
        let hasChanged = isDrained ? await hasChanged() : false
        for watcher in watchers { watcher.cancel() }
        let state = await delivery.state
        await delivery.stop()
        let counts = await source.counts
        progress.update(counts)
        progress.finish()
        letters.close()
        var result = Result(
            counts: counts, isComplete: isDrained, isDamaged: false, failure: state.failure.map { "\($0)" },
            resumedAfterLine: start.lines, deadLetteredBefore: start.deadLettered)
        if result.isComplete, await source.isUnfinished {
            (result.isComplete, result.failure) = (false, "the last line is unfinished: it has neither an end of line nor a whole object")
        }
        if hasChanged { (result.isComplete, result.failure) = (false, "the file was changed while it was imported; run the command again") }
        switch ended.withLock({ $0.reason }) {
        case .signal(let number): (result.signal, result.isComplete, result.failure) = (number, false, "interrupted")
        case .impatience(let failure):
            let limit = "nothing was delivered for \((giveUpAfter ?? .zero).components.seconds) seconds"
            result.failure = failure.map { "\(limit): \($0)" } ?? limit
        case .damage(let text): (result.isDamaged, result.isComplete, result.failure) = (true, false, text)
        case nil: break
        }
        if result.isComplete, let checkpointPath { try? ImportCheckpoint.remove(path: checkpointPath) }
        if !result.isComplete, checkpointPath == nil { result.gone = await source.unsettledLines }
        return result
    }

    /// Whether the file no longer holds what was read from it, as one that was written anew: then nobody knows which of its lines were sent.
    private func hasChanged() async -> Bool {
        guard checkpointPath != nil else { return false }
        if isReplaced { return true }
        let read = await source.read
        var found = ImportFingerprint()
        let isStopped = { [ended] in ended.withLock { $0.reason != nil } }
        if found.advance(to: read.offset, descriptor: descriptor, isStopped: isStopped), found.text == read.text { return false }
        return !isStopped()
    }

    /// Whether another file has the name by now: nothing of that one was read.
    private var isReplaced: Bool {
        var (named, read) = (stat(), stat())
        guard let path, stat(path, &named) == 0, fstat(descriptor, &read) == 0 else { return false }
        return (named.st_dev, named.st_ino) != (read.st_dev, read.st_ino)
    }

    // MARK: - Ending early

    private func watch() -> [any DispatchSourceProtocol] {
        var sources: [any DispatchSourceProtocol] = []
        for number in [SIGINT, SIGTERM] {
            // The default action would end the process before the source hears of it.
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
            source.setEventHandler { [weak self] in self?.stop(.signal(number)) }
            source.resume()
            sources.append(source)
        }
        let timer = DispatchSource.makeTimerSource(queue: .global())
        timer.schedule(deadline: .now() + .seconds(1), repeating: .seconds(1))
        timer.setEventHandler { [weak self] in self?.look() }
        timer.resume()
        return sources + [timer]
    }

    private func look() {
        if let giveUpAfter, progress.quiet >= giveUpAfter { stop(.impatience(delivery.latestState.failure)) }
        // What damaged the run has only said so.
        if case .damage = ended.withLock({ $0.reason }) { Task { await delivery.stop() } }
    }

    private func stop(_ reason: ImportEnding.Reason) {
        guard ended.withLock({ $0.stop(reason) }) else { return }
        transport.close()
        Task { await delivery.stop() }
    }
}
