/// Who has issued a certificate, and to whom, as it has them: enough to see whether it has signed itself (RFC 5280 §4.1).
struct CertificateNames {
    let issuer: ArraySlice<UInt8>
    let subject: ArraySlice<UInt8>

    /// - Returns: nil for bytes that are no certificate in DER.
    init?(der: [UInt8]) {
        var rest = der[...]
        guard var certificate = Self.value(&rest)?.content, var fields = Self.value(&certificate)?.content else { return nil }
        // The version is left out in the first one.
        if fields.first == 0xA0 { _ = Self.value(&fields) }
        guard Self.value(&fields) != nil, Self.value(&fields) != nil, let issuer = Self.value(&fields)?.content,
            Self.value(&fields) != nil, let subject = Self.value(&fields)?.content
        else { return nil }
        (self.issuer, self.subject) = (issuer, subject)
    }

    /// Takes the next value: a tag, a length in one byte or in as many as the first one says, and the content (X.690 §8.1).
    private static func value(_ bytes: inout ArraySlice<UInt8>) -> (tag: UInt8, content: ArraySlice<UInt8>)? {
        guard let tag = bytes.popFirst(), let first = bytes.popFirst() else { return nil }
        var length = Int(first)
        if first >= 0x80 {
            guard (1...4).contains(first & 0x7F), bytes.count >= Int(first & 0x7F) else { return nil }
            length = 0
            for _ in 0..<(first & 0x7F) { length = length << 8 | Int(bytes.removeFirst()) }
        }
        guard length <= bytes.count else { return nil }
        defer { bytes = bytes.dropFirst(length) }
        return (tag, bytes.prefix(length))
    }
}
