import HapaxClient
import HapaxModel

/// What became of lines that were given to queue files, as those say it themselves.
struct ImportedLines {
    /// Whether each file is there, is this client's or nobody's, and has removed no event unsent since.
    private(set) var areWhole = true
    /// Events that wait in them.
    private(set) var waiting: Int64 = 0

    /// - Parameter installs: With how many of its events each had removed before.
    init(_ client: OpenClient, _ installs: [EventID: Int64]) {
        let own = client.counters
        for (install, removed) in installs {
            let counters = install == own.installID ? own : Self.counters(of: install, in: client.directory)
            guard let counters, counters.removals == removed else {
                areWhole = false
                return
            }
            waiting += counters.waiting
        }
    }

    /// - Returns: nil if there is no such file, or another process holds it.
    private static func counters(of install: EventID, in directory: QueueDirectory) -> QueueCounters? {
        for number in (try? directory.numbers()) ?? [] where FileClaim.note(of: number, in: directory)?.install == install {
            guard case .open(let file) = FoundFile(number, in: directory) else { return nil }
            defer { file.close() }
            return file.counters.installID == install ? file.counters : nil
        }
        return nil
    }
}

extension ImportNote {
    /// The client's file is given lines from now on.
    mutating func noteInstall(of client: OpenClient) {
        let counters = client.counters
        if installs[counters.installID] == nil { installs[counters.installID] = counters.removals }
    }
}
