import Foundation
import HapaxModel
import Testing

@testable import hapax

@Suite("LineReader", .endsWhenItHangs)
struct LineReaderTests {
    private func lines(_ text: String) throws -> [LineReader.Line] {
        let pipe = Pipe()
        try pipe.fileHandleForWriting.write(contentsOf: Data(text.utf8))
        try pipe.fileHandleForWriting.close()
        var reader = LineReader(descriptor: pipe.fileHandleForReading.fileDescriptor, isStopped: { false })
        var lines: [LineReader.Line] = []
        while let line = try reader.next() { lines.append(line) }
        return lines
    }

    @Test("lines come with their places; the last one may lack its end, and says so")
    func linesHavePlaces() throws {
        let lines = try lines("one\n\ntwo")
        #expect(lines.map { String(decoding: $0.bytes, as: UTF8.self) } == ["one", "", "two"])
        #expect(lines.map(\.end) == [4, 5, 8])
        #expect(lines.map(\.number) == [1, 2, 3])
        #expect(lines.map(\.isTerminated) == [true, true, false])
    }

    @Test("a read that fails behind others is told, and told again; the lines before it are not given twice")
    func failedReadIsTold() throws {
        let terminal = try PretendTerminal()
        var settings = termios()
        tcgetattr(terminal.screen.fileDescriptor, &settings)
        cfmakeraw(&settings)
        tcsetattr(terminal.screen.fileDescriptor, TCSANOW, &settings)
        try terminal.screen.write(contentsOf: Data("one\ntwo\n".utf8))
        // From now on the other side's reads fail, behind what was written.
        try terminal.screen.close()
        var reader = LineReader(descriptor: terminal.keyboard.fileDescriptor, isStopped: { false })
        for end in [4, 8] as [Int64] { #expect(try reader.next()?.end == end) }
        for _ in 1...2 { #expect(throws: LineReader.Failure.self) { try reader.next() } }
    }

    @Test("a reader that is stopped inside a line gives no part of it, now or later (I1, I2)")
    func stoppedReaderGivesNoPartOfALine() throws {
        let pipe = Pipe()
        try pipe.fileHandleForWriting.write(contentsOf: Data("whole\n{half".utf8))
        let looks = Locked(0)
        // The first look lets the bytes in, the second one, in the middle of the line, says stop.
        var reader = LineReader(descriptor: pipe.fileHandleForReading.fileDescriptor) {
            looks.withLock { looks in
                looks += 1
                return looks == 2
            }
        }
        #expect(try reader.next()?.end == 6)
        #expect(try reader.next()?.number == nil)
        try pipe.fileHandleForWriting.write(contentsOf: Data("rest\n".utf8))
        #expect(try reader.next()?.number == nil, "the rest of a line is no line")
    }
}
