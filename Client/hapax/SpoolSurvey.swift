import Foundation
import HapaxClient
import HapaxModel

/// What lies beside a queue: the queues of those who found it taken.
struct SpoolSurvey {
    private(set) var summaries: [QueueReader.Summary] = []
    /// Those that cannot be read, and so may hold events that nobody can deliver.
    private(set) var unusable: [QueueDirectory] = []

    /// - Parameter pause: Between two looks at one that cannot be read. By sleeping: what is waited for tells nobody, and a command has
    ///   nothing else to do meanwhile.
    init(of queue: QueueDirectory, pause: () -> Void = { usleep(100_000) }) {
        do throws(StorageFailure) {
            for spool in try queue.spools() { look(at: spool, pause) }
        } catch {
            unusable.append(QueueDirectory(path: queue.spoolPath))
        }
    }

    /// A spool that its owner makes or removes at this moment looks as if it could not be read. That ends by itself.
    private mutating func look(at spool: QueueDirectory, _ pause: () -> Void) {
        for look in 0..<Self.looks {
            if look > 0 { pause() }
            do throws(StorageFailure) {
                if let summary = try QueueReader(directory: spool)?.summary() { summaries.append(summary) }
                return
            } catch {
                // It was delivered.
                if !spool.isThere { return }
            }
        }
        unusable.append(spool)
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
