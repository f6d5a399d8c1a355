import Foundation
import GRDB
import HapaxSQLite

/// The log beside a queue's file (https://www.sqlite.org/fileformat2.html#the_write_ahead_log), looked at before SQLite may overwrite it.
///
/// SQLite takes the first frame whose check sum is wrong for the log's end. After a kill it is; but one that changed on the disk hides the
/// commits behind it, and the next commit overwrites them.
struct QueueLog {
    private let bytes: Data

    private static let headerLength = 32
    private static let frameHeaderLength = 24
    private static let frameLength = frameHeaderLength + QueueRoom.pageBytes

    /// - Parameter path: The database's.
    /// - Returns: nil if it has none, or nothing is in it.
    init?(of path: String) {
        guard let bytes = FileManager.default.contents(atPath: DatabaseFile.resolved(path) + "-wal") else { return nil }
        guard bytes.count >= Self.headerLength + Self.frameLength else { return nil }
        self.bytes = bytes
    }

    /// - Throws: SQLITE_CORRUPT if commits are hidden.
    static func check(_ path: String) throws {
        if QueueLog(of: path)?.hidesCommits == true { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
    }

    /// The same for who has no lock: somebody may be writing the log, and then two looks differ.
    static func checkAtRest(_ path: String) throws {
        guard let log = QueueLog(of: path), log.hidesCommits, QueueLog(of: path)?.bytes == log.bytes else { return }
        throw DatabaseError(resultCode: .SQLITE_CORRUPT)
    }

    /// Whether there is a commit that SQLite will not see.
    ///
    /// What is left of a transaction that was taken back is none: on a full disk it has no end, and behind a failed flush of the disk it has
    /// one, but stands alone behind the commit that was written over its beginning.
    var hidesCommits: Bool { bytes.withUnsafeBytes { Walk($0).hidesCommits } }

    /// Whether nothing of its round stands behind what can be read.
    var isWhole: Bool {
        bytes.withUnsafeBytes { log in
            let walk = Walk(log)
            return walk.isWhole && !walk.hidesMore
        }
    }

    /// A log in which SQLite sees the commits behind changed frames that could be told what they were. It ends at the first that could not:
    /// nobody knows what the frames behind that one go on from.
    ///
    /// - Returns: nil if SQLite sees as much without it.
    func mended() -> Data? {
        bytes.withUnsafeBytes { log in
            let walk = Walk(log)
            guard walk.hidesMendedCommits, let last = walk.lastCommit else { return nil }
            var mended = walk.header
            var sum = LogCheckSum()
            mended.withUnsafeBytes { sum.add($0[...]) }
            mended.append(sum.numbers)
            for frame in 0...last {
                let summed = walk.summed(frame)
                summed.withUnsafeBytes { sum.add($0[...]) }
                mended.append(contentsOf: summed[..<8])
                mended.append([walk.salts.0, walk.salts.1] + sum.numbers)
                mended.append(contentsOf: summed[8...])
            }
            return mended
        }
    }

    /// The pages that its commits have left, and how many the file has then; nil without a commit.
    func pages() -> (pages: [UInt32: [UInt8]], count: UInt32)? {
        bytes.withUnsafeBytes { log in
            let walk = Walk(log)
            guard let last = walk.lastCommit else { return nil }
            var (pages, count): ([UInt32: [UInt8]], UInt32) = ([:], 0)
            for frame in 0...last {
                let summed = walk.summed(frame)
                let numbers = summed.withUnsafeBytes { (LogCheckSum.number($0, 0), LogCheckSum.number($0, 4)) }
                pages[numbers.0] = Array(summed[8...])
                if numbers.1 != 0 { count = numbers.1 }
            }
            return (pages, count)
        }
    }

    /// One walk through all frames, each checked against what the frame before it says.
    private struct Walk {
        private let log: UnsafeRawBufferPointer
        private let frames: Int
        private let isHeaderWhole: Bool
        /// Whether no frame of this round is left of which it cannot be told.
        private(set) var isWhole = true
        let salts: (UInt32, UInt32)
        /// In those frames that are what was written, or can be told what they were.
        private(set) var lastCommit: Int?
        /// Whether commits follow a frame of which that cannot be told.
        private(set) var hidesMore = false
        /// The first frame that SQLite does not take for what was written.
        private var firstChanged: Int?
        private var changedBits: [Int: (byte: Int, bit: UInt8)] = [:]

        init(_ log: UnsafeRawBufferPointer) {
            self.log = log
            frames = (log.count - QueueLog.headerLength) / QueueLog.frameLength
            var sum = LogCheckSum()
            sum.add(log[..<24])
            isHeaderWhole = LogCheckSum.number(log, 0) == QueueLog.magic && sum == LogCheckSum(log, at: 24)
            // The first frame is of the round that the header begins.
            let begin = isHeaderWhole ? 16 : QueueLog.headerLength + 8
            salts = (LogCheckSum.number(log, begin), LogCheckSum.number(log, begin + 4))
            if !isHeaderWhole {
                firstChanged = 0
                // Either the sum is what was written, or what it is made of.
                var made = LogCheckSum()
                header.withUnsafeBytes { made.add($0[...]) }
                let stored = LogCheckSum(log, at: 24)
                sum = continued(stored, 0) == written(of: 0) ? stored : made
            }
            let end = follow(from: sum)
            lookBehind(end)
            // Since 3.7.10 SQLite flushes the header before it writes a frame (`syncHeader` in its wal.c): no kill and no full disk leaves
            // frames behind a wrong one, and it sees none of them.
            if !isHeaderWhole, lastCommit == nil { hidesMore = true }
        }

        var hidesCommits: Bool { hidesMore || hidesMendedCommits }

        var hidesMendedCommits: Bool {
            guard let firstChanged, let lastCommit else { return false }
            return lastCommit >= firstChanged
        }

        /// The header's first 24 bytes as they must have been.
        var header: Data {
            var header = Data()
            header.append([QueueLog.magic, 3_007_000, UInt32(QueueRoom.pageBytes)])
            header.append([LogCheckSum.number(log, 12), salts.0, salts.1])
            return header
        }

        /// What a frame's sum is made of: page number, length of the database after a commit, page.
        func summed(_ frame: Int) -> [UInt8] {
            let place = QueueLog.place(of: frame)
            var bytes = Array(log[place..<place + 8])
            bytes += log[place + QueueLog.frameHeaderLength..<place + QueueLog.frameLength]
            if let (byte, bit) = changedBits[frame] { bytes[byte] ^= bit }
            return bytes
        }

        // MARK: - Frames

        private func number(_ frame: Int, _ offset: Int) -> UInt32 {
            LogCheckSum.number(log, QueueLog.place(of: frame) + offset)
        }

        private func written(of frame: Int) -> LogCheckSum { LogCheckSum(log, at: QueueLog.place(of: frame) + 16) }

        private func hasSalts(_ frame: Int) -> Bool { salts == (number(frame, 8), number(frame, 12)) }

        private func continued(_ sum: LogCheckSum, _ frame: Int) -> LogCheckSum {
            let place = QueueLog.place(of: frame)
            var sum = sum
            sum.add(log[place..<place + 8])
            sum.add(log[place + QueueLog.frameHeaderLength..<place + QueueLog.frameLength])
            return sum
        }

        /// - Returns: The first frame of which cannot be told what it was.
        private mutating func follow(from start: LogCheckSum) -> Int {
            var sum = start
            for frame in 0..<frames {
                let (found, written) = (continued(sum, frame), written(of: frame))
                if found == written, hasSalts(frame) {
                    sum = written
                } else {
                    guard let right = mend(frame, found, written) else { return frame }
                    firstChanged = firstChanged ?? frame
                    sum = right
                }
                if summed(frame)[4..<8].contains(where: { $0 != 0 }) { lastCommit = frame }
            }
            return frames
        }

        /// - Returns: The sum that was written with a changed frame; nil if that cannot be told.
        private mutating func mend(_ frame: Int, _ found: LogCheckSum, _ written: LogCheckSum) -> LogCheckSum? {
            // Only its salts have changed.
            if found == written { return written }
            guard hasSalts(frame) else { return nil }
            let bits = LogCheckSum.changedBits(in: summed(frame), sum: found, written: written)
            // Or only its sum has. The next frame goes on from the right one.
            var isSumChanged = found.differsByOneBit(from: written)
            if frame + 1 < frames {
                let next = self.written(of: frame + 1)
                if continued(found, frame + 1) == next { return found }
                if continued(written, frame + 1) == next { isSumChanged = false }
            }
            switch (bits.count, isSumChanged) {
            case (0, true): return found
            case (1, false):
                changedBits[frame] = bits[0]
                return written
            case (0, false): return nil
            default:
                // Several bits fit, or one at a page's end and one of its sum. No write that was cut off differs by one bit.
                hidesMore = true
                return nil
            }
        }

        // MARK: - Behind them

        private func isCommit(_ frame: Int) -> Bool { number(frame, 4) != 0 }

        /// Whether a frame goes on from the one before, whatever that went on from.
        private func goesOn(_ frame: Int) -> Bool { hasSalts(frame) && continued(written(of: frame - 1), frame) == written(of: frame) }

        /// Whether a frame's place was not written in this round: it is still empty, or of a round before. Each round counts up the first salt.
        private func isOlder(_ frame: Int) -> Bool {
            let age = salts.0 &- number(frame, 8)
            let rounds = isHeaderWhole ? LogCheckSum.number(log, 12) : 1 << 24
            let place = QueueLog.place(of: frame)
            return (age > 0 && age <= rounds) || log[place..<place + QueueLog.frameHeaderLength].allSatisfy { $0 == 0 }
        }

        /// What SQLite leaves behind the last frame that is whole is known: nothing of this round, or frames that go on to one commit at most
        /// if a transaction was taken back. Anything else has been written over; a power cut in the middle of a commit can look like that, too.
        private mutating func lookBehind(_ end: Int) {
            isWhole = end == frames || isOlder(end)
            // Frames of one round stand together.
            let other = (end..<frames).first { !hasSalts($0) } ?? frames
            if other < frames, !isOlder(other) { hidesMore = true }
            let commits = (end..<frames).filter { hasSalts($0) && isCommit($0) }
            // One whose writing was cut off is the very last one.
            guard let commit = commits.first, commits != [end] else { return }
            let isBehindCommit = end == 0 || lastCommit == end - 1
            let isLeft = commits.count == 1 && commit < other && isBehindCommit && (end..<commit).allSatisfy { goesOn($0 + 1) }
            if !isLeft { hidesMore = true }
        }
    }

    /// Of a log whose sums are made of numbers with their lowest byte first, as SQLite makes them on every platform of ours.
    private static let magic: UInt32 = 0x377F_0682

    private static func place(of frame: Int) -> Int { headerLength + frame * frameLength }
}

extension Data {
    fileprivate mutating func append(_ numbers: [UInt32]) {
        for number in numbers { Swift.withUnsafeBytes(of: number.bigEndian) { append(contentsOf: $0) } }
    }
}
