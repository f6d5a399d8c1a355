import Foundation

extension SenderFormat {
    /// CloudEvents over HTTP, in JSON (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md). An id is one only together with
    /// its source.
    package static let cloudEvents = SenderFormat(
        via: "cloudevents", body: [],
        event: [
            ("id", .id), ("source", .source), ("type", .name), ("time", .time(rank: 0)), ("subject", .user(rank: 0)), ("data", .data),
            ("datacontenttype", .mediaType),
        ],
        scope: .source, paths: [("/v1/cloudevents", "")], libraries: [], answer: .receipt, retryAfter: 5)
}

/// An event whose attributes stand in the head of its request.
package enum CloudEvent {
    /// - Parameters:
    ///   - attributes: The fields of the head that begin with `ce-`, without that, decoded (``value(_:)``).
    ///   - type: The content type of the body, which holds the data.
    /// - Returns: The same event as one JSON object.
    package static func object(_ attributes: [(name: String, value: String)], type: String?, data: [UInt8]) -> [UInt8] {
        // It is refused as what it is, before much is made of it.
        if data.count > SenderEvent.maximumBytes { return [UInt8(ascii: "{")] + data.map { _ in 0x20 } + [UInt8(ascii: "}")] }
        var writer = JSONWriter(capacity: data.count + 512)
        writer.object { writer in
            for (name, value) in attributes {
                writer.member(named: name)
                writer.string(value)
            }
            if let type {
                writer.member("datacontenttype", type)
            }
            guard !data.isEmpty else { return }
            // By what it is called, as in the body of an event that holds it.
            let isJSON = isJSON(type)
            if isJSON, isOneValue(data) {
                writer.member(named: "data")
                writer.raw(data)
            } else if isJSON || type?.lowercased().hasPrefix("text/") == true, let text = String(bytes: data, encoding: .utf8) {
                writer.member("data", text)
            } else {
                writer.member("data_base64", Data(data).base64EncodedString())
            }
        }
        return writer.bytes
    }

    /// `application/json`, `text/json`, and what ends with `+json`; what does not say is JSON.
    static func isJSON(_ type: String?) -> Bool {
        guard let type = type?.prefix(while: { $0 != ";" && $0 != " " }).lowercased() else { return true }
        return type.hasSuffix("/json") || type.hasSuffix("+json")
    }

    /// Otherwise a part of it could leave its place.
    private static func isOneValue(_ data: [UInt8]) -> Bool {
        data.withUnsafeBufferPointer { bytes in
            var steps = JSONSteps(bytes)
            steps.skipWhitespace()
            guard steps.value() != nil else { return false }
            steps.skipWhitespace()
            return steps.isAtEnd
        }
    }

    /// The value of an attribute in the head: percent encoding, perhaps within quotation marks (§3.1.3.2 of the binding).
    ///
    /// - Returns: nil if that is no UTF-8.
    package static func value(_ text: String) -> String? {
        var text = Substring(text)
        if text.utf8.count > 1, text.first == "\"", text.last == "\"" {
            text = text.dropFirst().dropLast()
            var (plain, isEscaped) = ("", false)
            for character in text {
                if character == "\\", !isEscaped { isEscaped = true } else { (plain, isEscaped) = (plain + String(character), false) }
            }
            text = plain[...]
        }
        return String(bytes: SenderForm.decoded(Array(text.utf8)[...], plusIsBlank: false), encoding: .utf8)
    }
}
