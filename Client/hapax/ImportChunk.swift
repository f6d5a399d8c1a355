import Foundation
import HapaxClient
import HapaxModel

/// Lines that belong together: they are stored, and then noted, as one.
struct ImportChunk {
    private(set) var events: [ImportedEvent] = []
    private(set) var rejected: [UInt8] = []
    private(set) var rejectedLines = 0
    private(set) var findings = CSVFindings()
    /// Why the first of them were rejected.
    private(set) var reasons: [String] = []
    private(set) var lines = 0
    private(set) var bytes = 0
    private(set) var end: Int64 = 0

    static let toldReasons = 3

    /// - Parameter csv: Which event each record is; nil for a file of lines.
    /// - Returns: false for a last line that is not whole.
    /// - Throws: ``CSVMapping/Failure``.
    mutating func take(_ line: LineReader.Line, _ csv: CSVMapping?) throws -> Bool {
        guard let csv else { return take(line) }
        // Blanks, or what CP/M ended texts with.
        if line.bytes.allSatisfy({ [0x20, 0x09, 0x0D, 0x1A].contains($0) }) {
            count(line)
            return true
        }
        if !line.isTerminated, CSVText.cells(of: line.bytes[...], separator: csv.separator)?.count != csv.columns.count { return false }
        count(line)
        do {
            guard !line.isCut else { throw Self.tooLong }
            guard !line.isOpen else { throw CSVProblem.unclosed }
            guard let row = try csv.row(of: line.bytes) else { return true }
            let scanned = EventScanner.scan(row.event[...])
            guard let id = scanned.id, scanned.problem == nil else { throw scanned.problem ?? Self.tooLong }
            events.append(ImportedEvent(id: id, time: scanned.time, bytes: row.event))
            findings += row.findings
        } catch let problem as EventProblem {
            reject(line, line.bytes[...], problem.reason.rawValue, problem.detail)
        } catch let problem as CSVProblem {
            reject(line, line.bytes[...], CSVProblem.reason, problem.detail)
        } catch let failure as CSVMapping.Failure {
            throw CSVMapping.Failure(reason: "line \(line.number): \(failure.reason)")
        }
        return true
    }

    private mutating func take(_ line: LineReader.Line) -> Bool {
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
        if !line.isTerminated, !text.isEmpty, let problem = scanned.problem,
            text.last != UInt8(ascii: "}") || problem.reason == .invalidJSON
        {
            return false
        }
        count(line)
        if text.isEmpty { return true }
        if let id = scanned.id, scanned.problem == nil {
            events.append(ImportedEvent(id: id, time: scanned.time, bytes: Array(event)))
            return true
        }
        let problem = line.isCut ? Self.tooLong : scanned.problem ?? Self.tooLong
        reject(line, text, problem.reason.rawValue, problem.detail)
        return true
    }

    private mutating func count(_ line: LineReader.Line) {
        (lines, bytes, end) = (lines + line.count, bytes + line.bytes.count, line.end)
    }

    private mutating func reject(_ line: LineReader.Line, _ text: ArraySlice<UInt8>, _ reason: String, _ detail: String) {
        var writer = JSONWriter()
        writer.object([
            "line": .integer(line.number), "reason": .string(reason), "detail": .string(detail),
            "text": .string(String(decoding: text, as: UTF8.self)),
        ])
        rejected += writer.bytes + [0x0A]
        rejectedLines += line.count
        if reasons.count < Self.toldReasons { reasons.append("line \(line.number): \(reason): \(detail)") }
    }

    private static let tooLong = EventProblem(.eventTooLarge, detail: "the line is longer than \(LineReader.maximumLineBytes) bytes")

    /// - Parameter text: A JSON text; nil if it is no time in the form of RFC 3339.
    private static func unixMilliseconds(_ text: ArraySlice<UInt8>) -> Int64? {
        (try? JSONDecoder().decode(String.self, from: Data(text))).flatMap { Timestamp($0)?.unixMilliseconds }
    }

    private static let notATime = EventProblem(
        .invalidTime, detail: "time must be Unix milliseconds or RFC 3339, as 2026-11-25T09:00:00.5+01:00, in the years 1970 to 9999")
}
