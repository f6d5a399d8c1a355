import Foundation
import HapaxClient
import HapaxModel

/// Lines that belong together: they are stored, and then noted, as one.
struct ImportChunk {
    private(set) var events: [ImportedEvent] = []
    private(set) var rejected: [UInt8] = []
    private(set) var rejectedLines = 0
    /// Why the first of them were rejected.
    private(set) var reasons: [String] = []
    private(set) var lines = 0
    private(set) var bytes = 0
    private(set) var end: Int64 = 0

    static let toldReasons = 3

    /// - Parameter isLast: Whether no end of line stands behind it.
    /// - Returns: false for a last line that is not whole.
    mutating func take(_ line: LineReader.Line, isLast: Bool) -> Bool {
        var text = line.bytes[...]
        if line.number == 1, text.starts(with: [0xEF, 0xBB, 0xBF]) { text = text.dropFirst(3) }
        while let last = text.last, last == 0x20 || last == 0x09 || last == 0x0D { text = text.dropLast() }
        var scanned = EventScanner.scan(text)
        var event = text
        if scanned.problem?.reason == .invalidTime, let value = PropertyLookup.value(of: "time", in: text), value.first == 0x22 {
            if let time = Self.unixMilliseconds(value) {
                event = text[..<value.startIndex] + Array("\(time)".utf8) + text[value.endIndex...]
                scanned = EventScanner.scan(event)
            } else {
                scanned.problem = Self.notATime
            }
        }
        // A brace at its end may be an inner one; blanks alone are the end of the file.
        if isLast, !text.isEmpty, let problem = scanned.problem, text.last != UInt8(ascii: "}") || problem.reason == .invalidJSON {
            return false
        }
        (lines, bytes, end) = (lines + 1, bytes + line.bytes.count, line.end)
        if text.isEmpty { return true }
        if let id = scanned.id, scanned.problem == nil {
            events.append(ImportedEvent(id: id, time: scanned.time, bytes: Array(event)))
            return true
        }
        let tooLong = EventProblem(.eventTooLarge, detail: "the line is longer than \(LineReader.maximumLineBytes) bytes")
        let problem = line.isCut ? tooLong : scanned.problem ?? tooLong
        var writer = JSONWriter()
        writer.object([
            "line": .integer(line.number), "reason": .string(problem.reason.rawValue), "detail": .string(problem.detail),
            "text": .string(String(decoding: text, as: UTF8.self)),
        ])
        rejected += writer.bytes + [0x0A]
        rejectedLines += 1
        if reasons.count < Self.toldReasons {
            reasons.append("line \(line.number): \(problem.reason.rawValue): \(problem.detail)")
        }
        return true
    }

    /// - Parameter text: A JSON text; nil if it is no time in the form of RFC 3339.
    private static func unixMilliseconds(_ text: ArraySlice<UInt8>) -> Int64? {
        (try? JSONDecoder().decode(String.self, from: Data(text))).flatMap { Timestamp($0)?.unixMilliseconds }
    }

    private static let notATime = EventProblem(
        .invalidTime, detail: "time must be Unix milliseconds or RFC 3339, as 2026-11-25T09:00:00.5+01:00, in the years 1970 to 9999")
}
