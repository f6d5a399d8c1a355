import Foundation

/// Reads a file's lines with their places, without ever holding more than a few of them.
struct LineReader {
    struct Line {
        /// Without its end, as UTF-8 if the file is what it is said to be.
        var bytes: [UInt8]
        /// From 1.
        var number: Int64
        /// How many lines of the file it is.
        var count = 1
        /// Of CSV: a cell in quotation marks begins in it and does not end where a row can end.
        var isOpen = false
        /// Behind its end, in bytes from the file's beginning.
        var end: Int64
        /// Bytes of it were left out, because it is longer than ``LineReader/maximumLineBytes``.
        var isCut: Bool
        /// An end of line stands behind it, not just the end of the file.
        var isTerminated = false
    }

    struct Failure: Error {
        let code: Int32
    }

    /// Of one line, in memory and where it is kept. Far above what an event may have.
    static let maximumLineBytes = 1024 * 1024

    private static let chunkBytes = 256 * 1024
    /// How long a read may wait before it looks whether it should end.
    private static let pollMilliseconds: Int32 = 100
    /// How soon nothing more has come for who does not wait. What trickles in is not sent line by line, nor a batch of it held back for long.
    private static let idleMilliseconds: Int32 = 5

    private let descriptor: Int32
    private let encoding: TextEncoding
    private let isStopped: @Sendable () -> Bool
    private var chunk: [UInt8] = []
    private var position = 0
    /// How many lines were given, those before the beginning included.
    var count: Int64 { number }
    private var number: Int64
    /// Behind the last line that was given.
    private(set) var offset: Int64
    private var isAtEnd = false
    private(set) var wasStopped = false
    /// Whether it gave no line because nothing more has come yet.
    private(set) var isWaiting = false
    /// What has come of a line while nobody waited for the rest.
    private var begun: (line: Line, read: Int64)?

    private enum Filled {
        case bytes, nothingYet, end, stopped
    }

    /// - Parameters:
    ///   - offset: The place where the descriptor stands.
    ///   - lines: How many lines lie before.
    init(
        descriptor: Int32, after offset: Int64 = 0, lines: Int64 = 0, encoding: TextEncoding = .utf8,
        isStopped: @escaping @Sendable () -> Bool
    ) {
        (self.descriptor, self.encoding) = (descriptor, encoding)
        self.offset = offset
        number = lines
        self.isStopped = isStopped
    }

    /// - Parameter waits: Whether to wait for a line that has not come yet, as of a pipe.
    /// - Returns: nil at the end, or when stopped. Part of a line that was read until then is nobody's: it is not a line, and whoever goes
    ///   on begins behind the last whole one. Without waiting also nil if ``isWaiting`` then.
    mutating func next(waits: Bool = true) throws(Failure) -> Line? {
        isWaiting = false
        guard !wasStopped else { return nil }
        var (line, read) = begun ?? (Line(bytes: [], number: number + 1, end: 0, isCut: false), offset)
        begun = nil
        while true {
            if position == chunk.count {
                let filled = try fill(waits: waits)
                if filled == .nothingYet {
                    begun = (line, read)
                    isWaiting = true
                    return nil
                }
                if filled == .stopped {
                    // What was read of the line is gone.
                    wasStopped = true
                    return nil
                }
                if filled == .end {
                    guard read > offset else { return nil }
                    break
                }
            }
            let newline = chunk[position...].firstIndex(of: UInt8(ascii: "\n"))
            let end = newline ?? chunk.count
            let room = Self.maximumLineBytes - line.bytes.count
            if end - position > room { line.isCut = true }
            line.bytes.append(contentsOf: chunk[position..<min(end, position + room)])
            line.isTerminated = newline != nil
            let next = line.isTerminated ? end + 1 : end
            read += Int64(next - position)
            position = next
            if line.isTerminated { break }
        }
        number += 1
        offset = read
        line.bytes = encoding.utf8(line.bytes)
        line.end = read
        return line
    }

    private mutating func fill(waits: Bool) throws(Failure) -> Filled {
        while !isAtEnd {
            if isStopped() { return .stopped }
            var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let ready = poll(&waiting, 1, waits ? Self.pollMilliseconds : Self.idleMilliseconds)
            if ready == 0, !waits { return .nothingYet }
            if ready == 0 || (ready < 0 && errno == EINTR) { continue }
            if chunk.count != Self.chunkBytes { chunk = [UInt8](repeating: 0, count: Self.chunkBytes) }
            let count = read(descriptor, &chunk, Self.chunkBytes)
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else {
                let code = errno
                chunk = []
                position = 0
                throw Failure(code: code)
            }
            if count == 0 {
                isAtEnd = true
                break
            }
            chunk.removeLast(Self.chunkBytes - count)
            position = 0
            return .bytes
        }
        chunk = []
        position = 0
        return .end
    }
}
