import HapaxModel

/// Builds the JSON text of events with any one thing wrong.
struct EventText {
    static let idText = "0199a385-187b-7abc-8def-0123456789ab"
    static let otherIDText = "0199a385-187b-7abc-8def-0123456789ac"

    private var fields: [(key: String, value: String)] = [
        ("event_id", "\"\(idText)\""), ("event", "\"e\""), ("time", "1"), ("distinct_id", "\"d\""), ("properties", "{}"),
    ]

    /// - Parameter values: JSON text by key; nil leaves the field out, an unknown key is added at the end.
    init(_ values: KeyValuePairs<String, String?> = [:]) {
        for (key, value) in values {
            let index = fields.firstIndex { $0.key == key }
            switch (index, value) {
            case (let index?, let value?): fields[index].value = value
            case (let index?, nil): fields.remove(at: index)
            case (nil, let value?): fields.append((key, value))
            case (nil, nil): break
            }
        }
    }

    var text: String {
        "{" + fields.map { "\"\($0.key)\":\($0.value)" }.joined(separator: ",") + "}"
    }

    var bytes: [UInt8] { Array(text.utf8) }

    var scanned: ScannedEvent { EventScanner.scan(bytes[...]) }

    var problem: EventProblem.Reason? { scanned.problem?.reason }

    /// An event whose properties are this text.
    static func properties(_ json: String) -> EventText { EventText(["properties": json]) }

    /// Brackets inside brackets, `depth` of them.
    static func nested(_ depth: Int, open: String = "[", close: String = "]", inner: String = "") -> String {
        String(repeating: open, count: depth) + inner + String(repeating: close, count: depth)
    }

    static func object(keys: Int) -> String {
        "{" + (0..<keys).map { "\"k\($0)\":\($0)" }.joined(separator: ",") + "}"
    }
}

/// Reads one event that is not made of text.
func scan(_ bytes: some Sequence<UInt8>) -> ScannedEvent {
    EventScanner.scan(Array(bytes)[...])
}

func scan(_ text: String) -> ScannedEvent {
    scan(text.utf8)
}
