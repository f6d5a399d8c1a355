import HapaxModel

/// What a history of tests writes into an event, to know it again wherever it turns up: the run that tracked it, and its place there.
package struct Mark: Hashable, Sendable, CustomStringConvertible, LosslessStringConvertible {
    package var run: String
    package var thread: Int
    package var index: Int

    package init(run: String, thread: Int, index: Int) {
        self.run = run
        self.thread = thread
        self.index = index
    }

    package init?(_ text: String) {
        let parts = text.split(separator: "/")
        guard parts.count == 3, let thread = Int(parts[1]), let index = Int(parts[2]) else { return nil }
        self.init(run: String(parts[0]), thread: thread, index: index)
    }

    package var description: String { "\(run)/\(thread)/\(index)" }

    /// The properties of its event: the mark, and a text of up to `fill` bytes that follows from it.
    package func properties(fill: Int) -> Properties {
        ["mark": description, "fill": Self.fill(of: description, fill)]
    }

    /// Whether this is the text that ``properties(fill:)`` made of the mark, for whatever limit.
    package static func isFill(_ text: String, of mark: String) -> Bool {
        text == String(fill(of: mark, .max).prefix(text.utf8.count)) && text.utf8.count <= maximumFill
    }

    private static let maximumFill = 2_000

    private static func fill(of mark: String, _ limit: Int) -> String {
        guard limit > 0 else { return "" }
        var random = SeededRandom(seed: mark.utf8.reduce(5_381) { $0 &* 33 &+ UInt64($1) })
        let count = limit == .max ? maximumFill : Int(random.next() % UInt64(min(limit, maximumFill) + 1))
        return String(String(repeating: mark + " ", count: maximumFill / (mark.utf8.count + 1) + 1).prefix(count))
    }
}
