import HapaxModel

/// Whether an event has a property of a certain value, decided here so that every store decides alike.
struct PropertyFilter: Hashable, Sendable {
    /// The filter as the client wrote it, such as `plan:pro`.
    let text: String
    let name: String
    /// What it finds, as ``CanonicalJSON``.
    let texts: [String]
    /// Hashes of the value read as text and, if it is valid JSON, as JSON.
    private let hashes: Set<UInt64>

    /// - Parameter text: A name, a colon and a value. `amount:12.5` finds the number, however it is written, and the text. A name with a
    ///   colon stands in quotation marks, as in JSON: `"a:b":1`.
    /// - Returns: nil without a name and a colon.
    init?(_ text: String) {
        let colon: String.Index?
        if text.hasPrefix("\"") {
            guard let end = Self.endOfQuotation(text),
                case .string(let quoted) = try? PropertyValue(json: String(text[..<end])), end < text.endIndex, text[end] == ":"
            else { return nil }
            (name, colon) = (quoted, end)
        } else {
            colon = text.firstIndex(of: ":")
            name = String(text[..<(colon ?? text.startIndex)])
        }
        guard let colon, !name.isEmpty else { return nil }
        self.text = text
        let value = String(text[text.index(after: colon)...])
        var hashes = [ValueHash.hash(text: Array(value.utf8)[...])]
        var texts = [CanonicalJSON.string(Array(value.utf8))]
        if (try? PropertyValue(json: value)) != nil {
            hashes.append(ValueHash.hash(json: Array(value.utf8)[...]))
            texts.append(CanonicalJSON.text(Array(value.utf8)[...]))
        }
        self.hashes = Set(hashes)
        self.texts = texts.map { String(decoding: $0, as: UTF8.self) }
    }

    /// The position after the closing quotation mark; nil if there is none. One pass over the bytes: the text is the caller's.
    private static func endOfQuotation(_ text: String) -> String.Index? {
        var (place, isEscaped) = (text.utf8.index(after: text.startIndex), false)
        while place < text.endIndex {
            let byte = text.utf8[place]
            place = text.utf8.index(after: place)
            if byte == UInt8(ascii: "\""), !isEscaped { return place }
            isEscaped = byte == UInt8(ascii: "\\") && !isEscaped
        }
        return nil
    }

    func keeps(_ event: EventRow) -> Bool {
        PropertyLookup.value(of: name, in: event.properties[...]).map { hashes.contains(ValueHash.hash(json: $0)) } ?? false
    }
}
