import HapaxModel

@testable import HapaxClient

/// What the files of a queue's directory hold, of those that nobody owns.
struct QueueContents {
    struct File {
        var number: Int
        var counters: QueueCounters
        var waiting: Set<EventID>
        var deadLetters: [DeadLetter]
    }

    private(set) var files: [File] = []

    /// - Throws: If a file cannot be used.
    init(_ path: String) throws {
        let directory = QueueDirectory(path: path)
        for number in try directory.numbers() {
            guard let claim = try? FileClaim(number, in: directory) else { continue }
            let file = try QueueFile(claim, durability: .process)
            defer { file.close() }
            let waiting = try file.events(after: 0, limit: 1_000_000).whole
            files.append(
                File(
                    number: number, counters: file.counters, waiting: Set(waiting.map(\.id)),
                    deadLetters: try file.deadLetters(after: 0, limit: 1_000_000)))
        }
    }

    var waiting: Int64 { files.reduce(0) { $0 + $1.counters.waiting } }
    var deadLettered: Int64 { files.reduce(0) { $0 + $1.counters.deadLettered } }
}
