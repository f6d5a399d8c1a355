import HapaxModel
import Logging

/// Keeps what is logged.
final class RecordedLog: Sendable {
    struct Line: Sendable {
        var level: Logger.Level
        var message: String
        var metadata: [String: String]
    }

    private let state = Locked<[Line]>([])

    var lines: [Line] { state.withLock { $0 } }

    var logger: Logger {
        var logger = Logger(label: "test") { [state] _ in Handler(state: state) }
        logger.logLevel = .info
        return logger
    }

    private struct Handler: LogHandler {
        let state: Locked<[Line]>
        var metadata: Logger.Metadata = [:]
        var logLevel: Logger.Level = .trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let line = Line(
                level: event.level, message: "\(event.message)", metadata: (event.metadata ?? [:]).mapValues { "\($0)" })
            state.withLock { $0.append(line) }
        }
    }
}
