import HapaxModel
import Logging
import TestSupport

/// Keeps what is logged.
final class RecordedLog: Sendable {
    struct Line: Sendable {
        var level: Logger.Level
        var message: String
        var metadata: [String: String]
    }

    private let state = Locked<[Line]>([])
    private let count = AwaitedCount()
    private let level: Logger.Level

    init(level: Logger.Level = .info) { self.level = level }

    var lines: [Line] { state.withLock { $0 } }

    /// Returns once there are so many.
    func lines(_ count: Int) async {
        await self.count.reaches(count)
    }

    var logger: Logger {
        var logger = Logger(label: "test") { [state, count] _ in Handler(state: state, count: count) }
        logger.logLevel = level
        return logger
    }

    private struct Handler: LogHandler {
        let state: Locked<[Line]>
        let count: AwaitedCount
        var metadata: Logger.Metadata = [:]
        var logLevel: Logger.Level = .trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let line = Line(level: event.level, message: "\(event.message)", metadata: (event.metadata ?? [:]).mapValues { "\($0)" })
            state.withLock {
                $0.append(line)
                count.set($0.count)
            }
        }
    }
}
