import Foundation
import HapaxClient
import HapaxModel

/// What lies beside a queue: the queues of those who found it taken.
struct SpoolSurvey {
    private(set) var summaries: [QueueReader.Summary] = []
    /// Those that cannot be read, and so may hold events that nobody can deliver.
    private(set) var unusable: [QueueDirectory] = []

    /// A spool that its owner makes or removes at this moment looks as if it could not be read. That ends by itself, so those are looked
    /// at again, all of them behind one pause: its length does not grow with their number.
    ///
    /// - Parameter pause: By sleeping: what is waited for tells nobody, and a command has nothing else to do meanwhile.
    init(of queue: QueueDirectory, pause: () -> Void = { usleep(100_000) }) {
        do throws(StorageFailure) {
            unusable = try queue.spools()
        } catch {
            unusable = [QueueDirectory(path: queue.spoolPath)]
            return
        }
        for look in 0..<Self.looks where !unusable.isEmpty {
            if look > 0 { pause() }
            unusable = unusable.filter { !isKnown($0) }
        }
    }

    /// - Returns: Whether all is known about a spool: it was read, or it is gone because it was delivered.
    private mutating func isKnown(_ spool: QueueDirectory) -> Bool {
        do throws(StorageFailure) {
            if let summary = try QueueReader(directory: spool)?.summary() { summaries.append(summary) }
            return true
        } catch {
            return !spool.isThere
        }
    }

    private static let looks = 3

    private init(unusable: [QueueDirectory]) { self.unusable = unusable }

    /// Nobody can say what lies there.
    static func outOfTime(_ queue: QueueDirectory) -> SpoolSurvey { SpoolSurvey(unusable: [QueueDirectory(path: queue.spoolPath)]) }

    /// Events that wait in those that can be read.
    var depth: Int64 { summaries.reduce(0) { $0 + $1.books.depth } }

    /// They are moved to the main queue when a spool is delivered.
    var deadLetters: Int { summaries.reduce(0) { $0 + $1.deadLetters } }

    func complain() {
        for spool in unusable { Terminal.complain("a spooled queue cannot be used and may hold events: \(spool.path)") }
    }
}
