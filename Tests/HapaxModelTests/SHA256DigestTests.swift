import Foundation
import Testing

@testable import HapaxModel

struct SHA256DigestTests {
    /// Text, key (nil for the plain hash), hex.
    static let vectors: [(text: String, key: [UInt8]?, hex: String)] = [
        ("", nil, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("abc", nil, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ("", [], "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"),
        ("what do ya want for nothing?", Array("Jefe".utf8), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
        (
            "Test Using Larger Than Block-Size Key - Hash Key First", [UInt8](repeating: 0xAA, count: 131),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        ),
    ]

    @Test("C34: SHA-256 and HMAC are those of FIPS 180-4 and RFC 4231", arguments: vectors)
    func digestsAreTheStandards(_ text: String, _ key: [UInt8]?, _ hex: String) {
        let digest = Array(text.utf8).withUnsafeBytes { bytes in
            key.map { SHA256Digest(of: bytes, under: $0) } ?? SHA256Digest(of: bytes)
        }
        #expect(digest.hex == hex)
        #expect(SHA256Digest(hex: hex) == digest)
        #expect(SHA256Digest(hex: String(hex.dropLast())) == nil && SHA256Digest(hex: "x" + hex.dropFirst()) == nil)
    }
}
