import Foundation
import HapaxModel

/// One answer of the server about one event, for a terminal. Nothing in it commands the terminal.
struct EventLine {
    private let json: ArraySlice<UInt8>

    /// - Returns: nil for what is no JSON object.
    init?(_ json: ArraySlice<UInt8>) {
        guard (try? JSONSerialization.jsonObject(with: Data(json))) is [String: Any] else { return nil }
        self.json = json
    }

    /// The same JSON on one line, in which nothing commands a terminal either.
    var oneLine: [UInt8] {
        var line: [UInt8] = []
        for scalar in String(decoding: json, as: UTF8.self).unicodeScalars {
            switch scalar.properties.generalCategory {
            // White space between values may hold a line's end; inside of a text it is escaped already.
            case .control where scalar.value < 0x20: line.append(0x20)
            case .control, .format, .lineSeparator, .paragraphSeparator:
                for unit in UTF16.encode(scalar) ?? .init() {
                    line += Array(("\\u" + String(0x10000 + Int(unit), radix: 16).dropFirst()).utf8)
                }
            default: line += Array(UTF8.encode(scalar) ?? .init())
            }
        }
        return line + [0x0A]
    }

    /// - Parameters:
    ///   - hasDate: Whether the day stands before the time.
    ///   - isColored: Whether the outcome has a colour.
    func text(hasDate: Bool, isColored: Bool) -> String {
        let instant = (text("at") ?? text("received_at")).flatMap { Timestamp($0) }
        let time = instant.map { Self.local($0, hasDate: hasDate) } ?? ""
        if let reason = text("reason") {
            let outcome = text("what") == "request" ? "refused" : ["conflict", "expired"].contains(reason) ? reason : "rejected"
            let name = text("name").map { "  " + Terminal.printable($0) } ?? ""
            let why = "\(reason): \(text("detail") ?? "")"
            return "\(time)  \(Self.colored(outcome, isColored))  \(Terminal.printable(why))\(name)"
        }
        let properties = PropertyLookup.value(of: "event.properties", in: json).map { String(decoding: $0, as: UTF8.self) } ?? ""
        let parts = [text("event.event"), text("event.distinct_id"), properties].compactMap { $0.map(Terminal.printable) }
        // Of what came long after it happened, as history does.
        let happened = number("event.time").map { Timestamp(clampingUnixMilliseconds: Int64($0)) }
        var isHistory = false
        if let instant, let happened { isHistory = abs(instant.unixMilliseconds - happened.unixMilliseconds) > 3_600_000 }
        let when = isHistory ? happened.map { "  of \(Self.local($0, hasDate: true))" } ?? "" : ""
        return "\(time)  \(Self.colored(text("outcome") ?? "stored", isColored))  \(parts.joined(separator: "  "))\(when)"
    }

    /// The text under a name; nil if there is none.
    func text(_ name: String) -> String? {
        PropertyLookup.value(of: name, in: json).flatMap { try? JSONDecoder().decode(String.self, from: Data($0)) }
    }

    func number(_ name: String) -> Int? {
        PropertyLookup.value(of: name, in: json).flatMap { Int(String(decoding: $0, as: UTF8.self)) }
    }

    private static func local(_ instant: Timestamp, hasDate: Bool) -> String {
        var seconds = time_t(instant.unixMicroseconds / 1_000_000)
        var parts = tm()
        localtime_r(&seconds, &parts)
        func two(_ number: Int32) -> String { (number < 10 ? "0" : "") + "\(number)" }
        let day = "\(parts.tm_year + 1900)-\(two(parts.tm_mon + 1))-\(two(parts.tm_mday)) "
        let milliseconds = "\(1_000 + instant.unixMilliseconds % 1_000)".dropFirst()
        return (hasDate ? day : "") + "\(two(parts.tm_hour)):\(two(parts.tm_min)):\(two(parts.tm_sec)).\(milliseconds)"
    }

    private static func colored(_ outcome: String, _ isColored: Bool) -> String {
        let padded = outcome.padding(toLength: max(9, outcome.count), withPad: " ", startingAt: 0)
        guard isColored else { return padded }
        let color =
            switch outcome {
            case "stored": "32"
            case "duplicate", "retry": "2"
            default: "31"
            }
        return "\u{1B}[\(color)m\(padded)\u{1B}[0m"
    }
}
