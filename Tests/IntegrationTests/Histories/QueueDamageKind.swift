import Foundation
import TestSupport

/// What somebody or something does to the files of a queue while nobody works on it.
enum QueueDamageKind: Sendable {
    enum File: Sendable { case main, any }

    /// Bits, anywhere or where a page says what it is.
    case flip(File, count: Int, inPageHeaders: Bool, seed: UInt64)
    case noise(File, seed: UInt64)
    case header(File, bytes: Int, seed: UInt64)
    case truncate(File, percent: Int)
    /// What SQLite takes for commits that were never made: nobody can tell that.
    case cutLog(percent: Int)
    case flipLog(seed: UInt64)
    case deleteLog

    static func random(using random: inout SeededRandom) -> Self {
        let file: File = Int.random(in: 0..<100, using: &random) < 80 ? .main : .any
        let seed = random.next()
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<40:
            return .flip(file, count: Int.random(in: 1...8, using: &random), inPageHeaders: Bool.random(using: &random), seed: seed)
        case 40..<60: return .noise(file, seed: seed)
        case 60..<72: return .header(file, bytes: Int.random(in: 1...100, using: &random), seed: seed)
        case 72..<86: return .truncate(file, percent: Int.random(in: 5...95, using: &random))
        case 86..<91: return .cutLog(percent: Int.random(in: 5...95, using: &random))
        case 91..<96: return .flipLog(seed: seed)
        default: return .deleteLog
        }
    }

    /// Whether it takes commits back, which no file then shows.
    var isUntellable: Bool {
        switch self {
        case .cutLog, .flipLog, .deleteLog: true
        default: false
        }
    }

    var file: File {
        switch self {
        case .flip(let file, _, _, _), .noise(let file, _), .header(let file, _, _), .truncate(let file, _): file
        default: .main
        }
    }

    /// In place, as it would happen to a disk, and nothing else is written: the file may be in use.
    ///
    /// - Returns: Whether there was anything to do it to.
    func inflict(on database: String) throws -> Bool {
        let path = isUntellable ? database + "-wal" : database
        guard let file = FileHandle(forUpdatingAtPath: path) else { return false }
        defer { try? file.close() }
        let size = Int(try file.seekToEnd())
        let pages = size / Self.pageBytes
        guard size > 0 else { return false }
        switch self {
        case .flip(_, let count, let inPageHeaders, let seed):
            var random = SeededRandom(seed: seed)
            for _ in 0..<count {
                var offset = Int.random(in: 0..<size, using: &random)
                if inPageHeaders, pages > 0 { offset = offset / Self.pageBytes * Self.pageBytes + Int.random(in: 0..<32, using: &random) }
                try Self.flip(file, min(offset, size - 1), &random)
            }
        case .noise(_, let seed):
            guard pages > 1 else { return false }
            var random = SeededRandom(seed: seed)
            let page = Int.random(in: 1..<pages, using: &random)
            try Self.overwrite(file, at: page * Self.pageBytes, count: Self.pageBytes, &random)
        case .header(_, let count, let seed):
            var random = SeededRandom(seed: seed)
            try Self.overwrite(file, at: 0, count: min(count, size), &random)
        case .truncate(_, let percent): try file.truncate(atOffset: UInt64(max(size * percent / 100, 1)))
        case .cutLog(let percent): try file.truncate(atOffset: UInt64(size * percent / 100))
        case .flipLog(let seed):
            var random = SeededRandom(seed: seed)
            try Self.flip(file, Int.random(in: 0..<size, using: &random), &random)
        case .deleteLog: try FileManager.default.removeItem(atPath: path)
        }
        return true
    }

    private static func flip(_ file: FileHandle, _ offset: Int, _ random: inout SeededRandom) throws {
        try file.seek(toOffset: UInt64(offset))
        let byte = try file.read(upToCount: 1)?.first ?? 0
        try file.seek(toOffset: UInt64(offset))
        try file.write(contentsOf: [byte ^ 1 << UInt8.random(in: 0..<8, using: &random)])
    }

    private static func overwrite(_ file: FileHandle, at offset: Int, count: Int, _ random: inout SeededRandom) throws {
        try file.seek(toOffset: UInt64(offset))
        try file.write(contentsOf: (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) })
    }

    private static let pageBytes = 4_096
}
