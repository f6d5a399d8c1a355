import Foundation
import HapaxModel
import Logging

/// Keeps what is logged, metadata included, as text.
struct RecordedLog: LogHandler {
    private let recorded = Locked<[String]>([])

    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    var lines: [String] { recorded.withLock { $0 } }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        recorded.withLock { $0.append("\(event.level) \(event.message) \(metadata) \(event.metadata ?? [:])") }
    }
}

/// Which thread something ran on.
struct ThreadName: Hashable, Sendable {
    private let number: UInt

    static var current: ThreadName { ThreadName(number: UInt(bitPattern: ObjectIdentifier(Thread.current).hashValue)) }
}

enum Files {
    static func write(_ bytes: [UInt8], to path: String) throws {
        try FileManager.default.createDirectory(
            at: URL(fileURLWithPath: path).deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data(bytes).write(to: URL(fileURLWithPath: path))
    }

    /// Of every file in a directory.
    static func contents(of directory: String) -> [[UInt8]] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return names.compactMap { FileManager.default.contents(atPath: directory + "/" + $0).map { [UInt8]($0) } }
    }
}
