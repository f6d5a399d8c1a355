import Foundation
import HapaxModel
import Logging

/// Writes each line of the log as one JSON object to standard error: `time`, `level`, `message`, and the metadata as further members.
struct JSONLog: LogHandler {
    var logLevel: Logger.Level = .info
    var metadata: Logger.Metadata = [:]

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        var writer = JSONWriter()
        writer.object { writer in
            writer.member("time", Timestamp(clampingUnixMilliseconds: Int64(Date().timeIntervalSince1970 * 1_000)).description)
            writer.member("level", event.level.rawValue)
            writer.member("message", "\(event.message)")
            for (name, value) in metadata.merging(event.metadata ?? [:], uniquingKeysWith: { $1 }).sorted(by: { $0.key < $1.key }) {
                writer.byte(UInt8(ascii: ","))
                writer.string(name)
                writer.byte(UInt8(ascii: ":"))
                writer.string("\(value)")
            }
        }
        // One call, so that lines of several threads do not mix; a log that nobody takes must not end the server.
        let line = writer.bytes + [UInt8(ascii: "\n")]
        _ = line.withUnsafeBytes { write(2, $0.baseAddress, $0.count) }
    }
}
