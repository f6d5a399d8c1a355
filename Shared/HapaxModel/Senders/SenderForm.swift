import Foundation

/// The forms in which scripts pack JSON so that a browser asks for no leave: fields of a form, base64.
package enum SenderForm {
    /// The JSON of a body: itself, or that of the form's field `data` or `data_list`, in base64 or not.
    ///
    /// - Returns: What may be packed (``Gzip/isPacked(_:)``); the body itself if it is none of these forms.
    package static func json(in body: [UInt8]) -> [UInt8] {
        guard let first = body.first(where: { $0 > 0x20 }), !isJSON(first) else { return body }
        let text = (field("data", in: body) ?? field("data_list", in: body)).map { decoded($0) } ?? body
        guard let start = text.first(where: { $0 > 0x20 }), !isJSON(start), !Gzip.isPacked(text) else { return text }
        guard let bytes = base64(text) else { return text }
        return Gzip.isPacked(bytes) ? bytes : wellFormed(bytes)
    }

    /// An event a line, as one array.
    package static func array(ofLines body: [UInt8]) -> [UInt8] {
        let lines = body.split(separator: UInt8(ascii: "\n")).filter { line in line.contains { $0 > 0x20 } }
        return [UInt8(ascii: "[")] + lines.joined(separator: [UInt8(ascii: ",")]) + [UInt8(ascii: "]")]
    }

    /// Some scripts write each half of a surrogate pair by itself before they pack it: three bytes and three, instead of the four of UTF-8 (RFC 3629 §3). A half without
    /// its other one becomes U+FFFD.
    private static func wellFormed(_ text: [UInt8]) -> [UInt8] {
        guard text.contains(0xED) else { return text }
        func half(_ place: Int, _ seconds: ClosedRange<UInt8>) -> UInt32? {
            guard place + 2 < text.count, text[place] == 0xED, seconds.contains(text[place + 1]) else { return nil }
            return UInt32(text[place + 1] & 0x0F) << 6 | UInt32(text[place + 2] & 0x3F)
        }
        var (bytes, place) = ([UInt8](), 0)
        bytes.reserveCapacity(text.count)
        while place < text.count {
            if let high = half(place, 0xA0...0xAF), let low = half(place + 3, 0xB0...0xBF),
                let scalar = Unicode.Scalar(0x10000 + high << 10 + low)
            {
                bytes += UTF8.encode(scalar) ?? .init()
                place += 6
            } else if half(place, 0xA0...0xBF) != nil {
                bytes += [0xEF, 0xBF, 0xBD]
                place += 3
            } else {
                bytes.append(text[place])
                place += 1
            }
        }
        return bytes
    }

    /// The value of a form's field as it is written; nil if the bytes are no form, or have no such field.
    package static func field(_ name: StaticString, in body: [UInt8]) -> ArraySlice<UInt8>? {
        var rest = body[...]
        // More than any SDK sends: a body of ampersands is not taken apart for each.
        for _ in 0..<32 where !rest.isEmpty {
            let end = rest.firstIndex(of: UInt8(ascii: "&")) ?? rest.endIndex
            let pair = rest[..<end]
            rest = rest[end...].dropFirst()
            guard let equals = pair.firstIndex(of: UInt8(ascii: "=")) else { continue }
            let matches = name.withUTF8Buffer { pair[..<equals].elementsEqual($0) }
            if matches { return pair[(equals + 1)...] }
        }
        return nil
    }

    /// The same decoded; nil if it is empty, or no UTF-8.
    package static func text(_ name: StaticString, in form: [UInt8]) -> String? {
        field(name, in: form).flatMap { $0.isEmpty ? nil : String(bytes: decoded($0), encoding: .utf8) }
    }

    /// The fields of a form, but for some, as members of one object, all of them texts.
    package static func object(_ form: [UInt8], without names: [StaticString]) -> [UInt8] {
        var writer = JSONWriter(capacity: 2 * form.count)
        writer.object { writer in
            for pair in form.split(separator: UInt8(ascii: "&")) where !names.contains(where: { field($0, in: Array(pair)) != nil }) {
                let equals = pair.firstIndex(of: UInt8(ascii: "=")) ?? pair.endIndex
                writer.member(named: String(decoding: decoded(pair[..<equals]), as: UTF8.self))
                writer.string(String(decoding: decoded(pair[equals...].dropFirst()), as: UTF8.self))
            }
        }
        return writer.bytes
    }

    private static func isJSON(_ byte: UInt8) -> Bool { [UInt8(ascii: "{"), UInt8(ascii: "["), 0xEF].contains(byte) }

    /// Percent encoding of forms, in which `+` is a blank (https://url.spec.whatwg.org/#urlencoded-parsing).
    static func decoded(_ field: ArraySlice<UInt8>, plusIsBlank: Bool = true) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(field.count)
        var place = field.startIndex
        while place < field.endIndex {
            let byte = field[place]
            if byte == UInt8(ascii: "%"), place + 2 < field.endIndex, let high = hex(field[place + 1]), let low = hex(field[place + 2]) {
                bytes.append(high << 4 | low)
                place += 3
            } else {
                bytes.append(plusIsBlank && byte == UInt8(ascii: "+") ? 0x20 : byte)
                place += 1
            }
        }
        return bytes
    }

    private static func hex(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - 0x30
        case UInt8(ascii: "a")...UInt8(ascii: "f"), UInt8(ascii: "A")...UInt8(ascii: "F"): (byte | 0x20) - 0x57
        default: nil
        }
    }

    /// Of either alphabet (RFC 4648 §4, §5), padded or not; a blank is a `+` that no one has encoded.
    static func base64(_ text: [UInt8]) -> [UInt8]? {
        var (bytes, bits, count) = ([UInt8](), UInt32(0), 0)
        bytes.reserveCapacity(text.count / 4 * 3)
        for byte in text {
            let digit: UInt8
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): digit = byte - 65
            case UInt8(ascii: "a")...UInt8(ascii: "z"): digit = byte - 71
            case UInt8(ascii: "0")...UInt8(ascii: "9"): digit = byte + 4
            case UInt8(ascii: "+"), UInt8(ascii: "-"), 0x20: digit = 62
            case UInt8(ascii: "/"), UInt8(ascii: "_"): digit = 63
            case UInt8(ascii: "="), 0x0A, 0x0D: continue
            default: return nil
            }
            (bits, count) = (bits << 6 | UInt32(digit), count + 6)
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(count)))
            }
        }
        return bytes
    }
}
