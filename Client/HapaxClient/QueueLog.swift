import Foundation
import GRDB

/// The log beside a queue's file (https://www.sqlite.org/fileformat2.html#the_write_ahead_log), looked at before SQLite may overwrite it.
///
/// SQLite takes the first frame whose check sum is wrong for the log's end. After a kill it is; but one that changed on the disk hides the
/// commits behind it, and the next commit overwrites them.
struct QueueLog {
    private let bytes: Data

    private static let headerLength = 32
    private static let frameLength = 24 + QueueRoom.pageBytes

    /// - Returns: nil if there is none, or nothing in it.
    init?(path: String) {
        guard let bytes = FileManager.default.contents(atPath: path) else { return nil }
        guard bytes.count >= Self.headerLength + Self.frameLength else { return nil }
        self.bytes = bytes
    }

    /// - Throws: SQLITE_CORRUPT if commits are hidden.
    static func check(_ path: String) throws {
        if QueueLog(path: path)?.hidesCommits == true { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
    }

    /// Whether a commit follows that SQLite will not see. What is left of a transaction that was taken back, as on a full disk, has none.
    var hidesCommits: Bool {
        bytes.withUnsafeBytes { log in
            let frames = (log.count - Self.headerLength) / Self.frameLength
            let isBigEndian = log[3] & 1 == 1
            var sum = Sum()
            sum.add(log[0..<24], isBigEndian)
            let isHeaderWhole = Self.number(log, 0) | 1 == 0x377F_0683 && sum == Sum(log, at: 24)
            // A log that was never begun is all zeros; with a header that is wrong SQLite sees no frame.
            guard isHeaderWhole else { return (0..<frames).contains { Self.number(log, Self.place(of: $0) + 4) != 0 } }
            let salts = (Self.number(log, 16), Self.number(log, 20))
            var isBroken = false
            for frame in 0..<frames {
                let place = Self.place(of: frame)
                guard salts == (Self.number(log, place + 8), Self.number(log, place + 12)) else {
                    // Of an earlier round, unless its own head has changed.
                    isBroken = true
                    sum = Sum(log, at: place + 16)
                    continue
                }
                sum.add(log[place..<place + 8], isBigEndian)
                sum.add(log[place + 24..<place + Self.frameLength], isBigEndian)
                let isWhole = sum == Sum(log, at: place + 16)
                if isBroken, isWhole, Self.number(log, place + 4) != 0 { return true }
                if !isWhole { isBroken = true }
                sum = Sum(log, at: place + 16)
            }
            return false
        }
    }

    private static func place(of frame: Int) -> Int { headerLength + frame * frameLength }

    private static func number(_ log: UnsafeRawBufferPointer, _ offset: Int) -> UInt32 {
        UInt32(bigEndian: log.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }

    /// Two sums over pairs of numbers, each frame's going on from the one before.
    private struct Sum: Hashable {
        var first: UInt32 = 0
        var second: UInt32 = 0

        init() {}

        init(_ log: UnsafeRawBufferPointer, at offset: Int) {
            first = QueueLog.number(log, offset)
            second = QueueLog.number(log, offset + 4)
        }

        mutating func add(_ bytes: Slice<UnsafeRawBufferPointer>, _ isBigEndian: Bool) {
            let bytes = UnsafeRawBufferPointer(rebasing: bytes)
            for offset in stride(from: 0, to: bytes.count, by: 8) {
                let pair = (
                    bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self),
                    bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self)
                )
                first &+= (isBigEndian ? UInt32(bigEndian: pair.0) : UInt32(littleEndian: pair.0)) &+ second
                second &+= (isBigEndian ? UInt32(bigEndian: pair.1) : UInt32(littleEndian: pair.1)) &+ first
            }
        }
    }
}
