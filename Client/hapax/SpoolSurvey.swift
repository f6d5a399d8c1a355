import HapaxClient
import HapaxModel

/// What lies beside a queue: the queues of those who found it taken.
struct SpoolSurvey {
    private(set) var summaries: [QueueReader.Summary] = []
    /// Those that cannot be read, and so may hold events that nobody can deliver.
    private(set) var unusable: [QueueDirectory] = []

    init(of queue: QueueDirectory) {
        for spool in queue.spools() {
            do throws(StorageFailure) {
                if let summary = try QueueReader(directory: spool)?.summary() { summaries.append(summary) }
            } catch {
                // One that is removed while it is looked at was delivered.
                if spool.hasQueue { unusable.append(spool) }
            }
        }
    }

    /// Events that wait in those that can be read.
    var depth: Int64 { summaries.reduce(0) { $0 + $1.books.depth } }

    func complain() {
        for spool in unusable { Terminal.complain("a spooled queue cannot be used and may hold events: \(spool.path)") }
    }
}
