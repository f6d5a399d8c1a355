import HapaxClient
import HapaxModel

/// What became of lines that were given to queue files, as those say it themselves.
struct ImportedLines {
    /// Whether each file is there, is this client's or nobody's, and has removed no event unsent since.
    private(set) var areWhole = true
    /// Events that wait in them.
    private(set) var waiting: Int64 = 0
    /// Events that became dead letters since, and have not been put back.
    private(set) var deadLettered: Int64 = 0

    /// - Parameter installs: How each stood before.
    /// - Throws: If a file cannot be looked into: that is not the same as damaged or gone.
    init(_ client: OpenClient, _ installs: [EventID: ImportNote.Before]) throws(StorageFailure) {
        let own = client.counters
        for (install, before) in installs {
            let counters = install == own.installID ? own : try Self.counters(of: install, in: client.directory)
            guard let counters, counters.removals == before.removals else {
                areWhole = false
                return
            }
            waiting += counters.waiting
            deadLettered += max(counters.deadLettered - before.deadLettered, 0)
        }
    }

    /// - Returns: nil if there is no such file, or another process holds it.
    private static func counters(of install: EventID, in directory: QueueDirectory) throws(StorageFailure) -> QueueCounters? {
        for number in try directory.numbers() where FileClaim.note(of: number, in: directory)?.install == install {
            switch FoundFile(number, in: directory) {
            case .open(let file):
                defer { file.close() }
                return file.counters.installID == install ? file.counters : nil
            case .owned: return nil
            case .unusable(let failure): throw failure
            }
        }
        return nil
    }
}

extension ImportNote {
    /// The client's file is given lines from now on.
    mutating func noteInstall(of client: OpenClient) {
        let counters = client.counters
        guard installs[counters.installID] == nil else { return }
        installs[counters.installID] = Before(removals: counters.removals, deadLettered: counters.deadLettered)
    }
}
