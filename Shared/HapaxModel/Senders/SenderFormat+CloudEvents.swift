import Foundation

extension SenderFormat {
    /// CloudEvents over HTTP, in JSON (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md). An id is one only together with
    /// its source.
    package static let cloudEvents = SenderFormat(
        via: "cloudevents", body: [],
        event: [
            ("id", .id), ("source", .source), ("type", .name), ("time", .time(rank: 0)), ("subject", .user(rank: 0)), ("data", .data),
        ],
        scope: .source, paths: [("/v1/cloudevents", "")], libraries: [], answer: .receipt, retryAfter: 5)
}

/// An event whose attributes stand in the head of its request.
package enum CloudEvent {
    /// - Parameters:
    ///   - attributes: The fields of the head that begin with `ce-`, without that.
    ///   - type: The content type of the body, which holds the data.
    /// - Returns: The same event as one JSON object.
    package static func object(_ attributes: [(name: String, value: String)], type: String?, data: [UInt8]) -> [UInt8] {
        var writer = JSONWriter(capacity: data.count + 512)
        writer.object { writer in
            for (name, value) in attributes {
                writer.member(named: name)
                writer.string(decoded(value))
            }
            if let type {
                writer.member("datacontenttype", type)
            }
            guard !data.isEmpty else { return }
            if isJSON(type), isOneValue(data) {
                writer.member(named: "data")
                writer.raw(data)
            } else if let text = String(validating: data, as: UTF8.self) {
                writer.member("data", text)
            } else {
                writer.member("data_base64", Data(data).base64EncodedString())
            }
        }
        return writer.bytes
    }

    /// `application/json`, `text/json`, and what ends with `+json`; what does not say is JSON.
    private static func isJSON(_ type: String?) -> Bool {
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

    private static func decoded(_ value: String) -> String {
        String(decoding: SenderForm.decoded(Array(value.utf8)[...], plusIsBlank: false), as: UTF8.self)
    }
}
