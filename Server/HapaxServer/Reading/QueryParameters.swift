import Foundation
import HapaxModel

/// The parameters of one question. One that is unknown, without a usable value, or repeated where it has one value, is refused, and the refusal
/// names it.
struct QueryParameters {
    private var values: [String: [String]] = [:]

    /// - Parameters:
    ///   - query: The text after the `?`, in the encoding of forms: `+` is a space.
    ///   - known: The names of all parameters that the path takes.
    ///   - repeatable: Those that may come more than once.
    ///   - ignoresOthers: Whether other names are ignored, since a sender's proxy may add some.
    init(
        _ query: String?, known: Set<String>, repeatable: Set<String> = [], ignoresOthers: Bool = false
    ) throws(RequestProblem) {
        let pairs = (query ?? "").split(separator: "&", maxSplits: ServerLimits.parameters)
        guard pairs.count <= ServerLimits.parameters else {
            throw RequestProblem.parameter("?", "at most \(ServerLimits.parameters) parameters can be given")
        }
        for pair in pairs {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = Self.decoded(parts[0])
            if ignoresOthers, name.map({ !known.contains($0) }) ?? true { continue }
            guard let name else {
                throw RequestProblem.parameter("?", "a parameter's name is too long, or is not UTF-8 in percent encoding")
            }
            guard known.contains(name) else {
                throw RequestProblem.parameter(
                    name, known.isEmpty ? "no parameter is known here" : "known here: \(known.sorted().joined(separator: ", "))")
            }
            guard parts.count == 2, let value = Self.decoded(parts[1]), !value.isEmpty, !value.utf8.contains(0) else {
                throw RequestProblem.parameter(
                    name,
                    "must have a value of at most \(ServerLimits.parameterBytes) bytes, in UTF-8 and percent encoding, without U+0000")
            }
            guard values[name] == nil || repeatable.contains(name) else { throw RequestProblem.parameter(name, "is given twice") }
            values[name, default: []].append(value)
        }
    }

    /// - Returns: nil for a text that is no encoding of one, or is too long.
    private static func decoded(_ text: Substring) -> String? {
        // Each byte takes three characters at most.
        guard text.utf8.count <= 3 * ServerLimits.parameterBytes,
            let value = text.replacingOccurrences(of: "+", with: " ").removingPercentEncoding,
            value.utf8.count <= ServerLimits.parameterBytes
        else { return nil }
        return value
    }

    func text(_ name: String) -> String? { values[name]?.first }

    func texts(_ name: String) -> [String] { values[name] ?? [] }

    func id(_ name: String) throws(RequestProblem) -> EventID? {
        try parse(name, "must be a UUID") { EventID(uuidString: $0) }
    }

    func count(_ name: String, upTo maximum: Int, default count: Int) throws(RequestProblem) -> Int {
        try parse(name, "must be a whole number from 1 to \(maximum)") { Int($0).flatMap { (1...maximum).contains($0) ? $0 : nil } }
            ?? count
    }

    /// From the first parameter up to, not including, the second, in Unix microseconds. If one is missing, that end is open: 0, `Int64.max`.
    func span(_ first: String = "from", _ last: String = "to") throws(RequestProblem) -> Range<Int64> {
        let form = "must be a day (2026-11-25, UTC) or an instant in the form of RFC 3339"
        func instant(_ text: String) -> Int64? { (CalendarDay(text).map { Timestamp($0) } ?? Timestamp(text))?.unixMicroseconds }
        let from = try parse(first, form, instant) ?? 0
        let to = try parse(last, form, instant) ?? .max
        guard from <= to else { throw RequestProblem.parameter(last, "must not be before \(first)") }
        return from..<to
    }

    /// The span of the events' own times, as ``span(_:_:)`` gives it.
    func happened() throws(RequestProblem) -> Range<Int64> { try span("happened_from", "happened_to") }

    func word<Word: RawRepresentable & CaseIterable>(_ name: String, _: Word.Type) throws(RequestProblem) -> Word?
    where Word.RawValue == String {
        try parse(name, "must be one of \(Word.allCases.map(\.rawValue).joined(separator: ", "))") { Word(rawValue: $0) }
    }

    func parse<Value>(_ name: String, _ detail: String, _ read: (String) -> Value?) throws(RequestProblem) -> Value? {
        guard let text = text(name) else { return nil }
        guard let value = read(text) else { throw RequestProblem.parameter(name, detail) }
        return value
    }
}
