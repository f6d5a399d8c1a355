import Foundation
import GRDB

/// The log beside a queue's file (https://www.sqlite.org/fileformat2.html#the_write_ahead_log), looked at before SQLite may overwrite it.
///
/// SQLite takes the first frame whose check sum is wrong for the log's end. After a kill it is; but one that changed on the disk hides the
/// commits behind it, and the next commit overwrites them.
struct QueueLog {
    private let bytes: Data

    /// Of a log whose sums are over numbers in the machine's order, which is little-endian wherever Swift runs.
    private static let magic: UInt32 = 0x377F_0682
    private static let headerLength = 32
    private static let frameHeaderLength = 24
    private static let frameLength = frameHeaderLength + QueueRoom.pageBytes

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
    var hidesCommits: Bool { bytes.withUnsafeBytes { Walk($0).hidesCommits } }

    /// A log in which SQLite sees every commit up to the last whole one: the check sums are made anew, and what changed is for
    /// those to find out who read the pages.
    struct Mended {
        var bytes: Data
        /// Whether nothing changed in the last commit, which has the queue's latest books.
        var endsWhole: Bool
    }

    /// - Returns: nil if no commit is hidden, or none can be recognised.
    func mended() -> Mended? {
        bytes.withUnsafeBytes { log in
            let walk = Walk(log)
            guard walk.hidesCommits, let last = walk.lastCommit else { return nil }
            let pages = Self.number(log, Self.place(of: last) + 4)
            var header = [UInt32](repeating: 0, count: 6)
            for index in header.indices { header[index] = Self.number(log, index * 4) }
            (header[0], header[1], header[2]) = (Self.magic, 3_007_000, UInt32(QueueRoom.pageBytes))
            (header[4], header[5]) = walk.salts
            var mended = Data()
            var sum = Sum()
            mended.append(header, adding: &sum)
            mended.append(sum.numbers)
            for frame in 0...last {
                let place = Self.place(of: frame)
                let page = Self.number(log, place)
                // The first page is made anew, see FirstPage: an older one in its place would say that the file is shorter. The last frame
                // ends the log, and is whole. A frame without a page would end it, too.
                guard page > 1 || frame == last else { continue }
                mended.append([page, frame == last ? pages : 0], adding: &sum)
                let content = log[place + Self.frameHeaderLength..<place + Self.frameLength]
                sum.add(content)
                mended.append([walk.salts.0, walk.salts.1])
                mended.append(sum.numbers)
                mended.append(contentsOf: content)
            }
            return Mended(bytes: mended, endsWhole: !walk.broken.contains { (walk.commitBefore(last) + 1...last).contains($0) })
        }
    }

    /// One walk through all frames, each checked against what the frame before it says.
    private struct Walk {
        let salts: (UInt32, UInt32)
        private let isHeaderWhole: Bool
        private var commits: [Int] = []
        /// Frames that are not what was written; a last one may never have been written whole.
        private(set) var broken: [Int] = []

        init(_ log: UnsafeRawBufferPointer) {
            let frames = (log.count - QueueLog.headerLength) / QueueLog.frameLength
            var sum = Sum()
            sum.add(log[0..<24])
            isHeaderWhole = QueueLog.number(log, 0) == QueueLog.magic && sum == Sum(log, at: 24)
            // The first frame is of the round that the header begins.
            let begin = isHeaderWhole ? 16 : QueueLog.headerLength + 8
            salts = (QueueLog.number(log, begin), QueueLog.number(log, begin + 4))
            for frame in 0..<frames {
                let place = QueueLog.place(of: frame)
                // Of an earlier round, unless its own head has changed.
                var isWhole = salts == (QueueLog.number(log, place + 8), QueueLog.number(log, place + 12))
                if isWhole {
                    sum.add(log[place..<place + 8])
                    sum.add(log[place + QueueLog.frameHeaderLength..<place + QueueLog.frameLength])
                    // Nothing but its header says what the first one's sum goes on from.
                    isWhole = sum == Sum(log, at: place + 16) || frame == 0 && !isHeaderWhole
                }
                if !isWhole {
                    broken.append(frame)
                } else if QueueLog.number(log, place + 4) != 0 {
                    commits.append(frame)
                }
                sum = Sum(log, at: place + 16)
            }
        }

        var lastCommit: Int? { commits.last }

        /// - Returns: -1 if it is the first.
        func commitBefore(_ commit: Int) -> Int { commits.last { $0 < commit } ?? -1 }

        var hidesCommits: Bool {
            // A log that was never begun is all zeros; with a header that is wrong SQLite sees no frame.
            guard isHeaderWhole, let first = broken.first else { return !isHeaderWhole && !commits.isEmpty }
            return commits.contains { $0 > first }
        }
    }

    private static func place(of frame: Int) -> Int { headerLength + frame * frameLength }

    private static func number(_ log: UnsafeRawBufferPointer, _ offset: Int) -> UInt32 {
        UInt32(bigEndian: log.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }

    /// Two sums over pairs of numbers, each frame's going on from the one before.
    fileprivate struct Sum: Hashable {
        var first: UInt32 = 0
        var second: UInt32 = 0

        init() {}

        init(_ log: UnsafeRawBufferPointer, at offset: Int) {
            first = QueueLog.number(log, offset)
            second = QueueLog.number(log, offset + 4)
        }

        mutating func add(_ bytes: Slice<UnsafeRawBufferPointer>) {
            let bytes = UnsafeRawBufferPointer(rebasing: bytes)
            for offset in stride(from: 0, to: bytes.count, by: 8) {
                first &+= UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self)) &+ second
                second &+= UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset + 4, as: UInt32.self)) &+ first
            }
        }

        var numbers: [UInt32] { [first, second] }
    }
}

extension Data {
    fileprivate mutating func append(_ numbers: [UInt32]) {
        for number in numbers { Swift.withUnsafeBytes(of: number.bigEndian) { append(contentsOf: $0) } }
    }

    fileprivate mutating func append(_ numbers: [UInt32], adding sum: inout QueueLog.Sum) {
        let start = count
        append(numbers)
        withUnsafeBytes { sum.add($0[start..<$0.count]) }
    }
}
