import ArgumentParser

/// How a file's bytes are text.
enum TextEncoding: String, ExpressibleByArgument, CaseIterable {
    case utf8 = "utf-8"
    case windows1252 = "windows-1252"

    func utf8(_ bytes: [UInt8]) -> [UInt8] {
        guard self == .windows1252, let first = bytes.firstIndex(where: { $0 >= 0x80 }) else { return bytes }
        var text = String.UnicodeScalarView()
        for byte in bytes[first...] {
            text.append((0x80...0x9F).contains(byte) ? Self.between0x80And0x9F[Int(byte - 0x80)] : Unicode.Scalar(byte))
        }
        return bytes[..<first] + Array(String(text).utf8)
    }

    /// https://encoding.spec.whatwg.org/index-windows-1252.txt; the five bytes that have no sign stay control characters.
    private static let between0x80And0x9F = Array(
        "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8D}Ž\u{8F}\u{90}‘’“”•–—˜™š›œ\u{9D}žŸ".unicodeScalars)
}
