import Foundation
import Testing

/// The files that pin the wire: what is in them was sent to servers and stored in queues, so it may only ever be added to.
enum Golden {
    /// The bytes of a file without the line's end that editors put last.
    static func bytes(_ name: String) throws -> [UInt8] {
        let url = try #require(Bundle.module.url(forResource: name, withExtension: nil, subdirectory: "Golden"))
        var bytes = [UInt8](try Data(contentsOf: url))
        if bytes.last == 0x0A { bytes.removeLast() }
        return bytes
    }

    /// Where two texts part, with what stands there; nil if they are the same.
    static func difference(_ written: [UInt8], _ pinned: [UInt8]) -> String? {
        guard written != pinned else { return nil }
        let same = zip(written, pinned).prefix { $0 == $1 }.count
        func around(_ bytes: [UInt8]) -> String {
            String(decoding: bytes[max(same - 30, 0)..<min(same + 30, bytes.count)], as: UTF8.self)
        }
        return "from byte \(same): written …\(around(written))…, pinned …\(around(pinned))…"
    }

    static func expect(_ written: [UInt8], matches name: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let difference = try difference(written, bytes(name))
        #expect(difference == nil, "\(name): \(difference ?? "")", sourceLocation: sourceLocation)
    }
}
