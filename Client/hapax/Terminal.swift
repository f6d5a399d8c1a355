import Foundation
import HapaxModel

/// What a command says: results on standard output, everything else on standard error.
enum Terminal {
    static func say(_ text: String) {
        write(Array((text + "\n").utf8))
    }

    /// One object on one line, its keys sorted.
    static func say(json fields: Properties) {
        var writer = JSONWriter()
        writer.object(fields)
        write(writer.bytes + [0x0A])
    }

    static func complain(_ text: String) {
        FileHandle.standardError.write(Data(("hapax: " + text + "\n").utf8))
    }

    static func write(_ bytes: [UInt8]) {
        FileHandle.standardOutput.write(Data(bytes))
    }
}

extension PropertyValue {
    static func optional(_ id: EventID?) -> PropertyValue { id.map { .string($0.description) } ?? .null }
    static func optional(_ number: Int64?) -> PropertyValue { number.map { .integer($0) } ?? .null }
    static func optional(_ text: String?) -> PropertyValue { text.map { .string($0) } ?? .null }
    static func count(_ number: Int) -> PropertyValue { .integer(Int64(number)) }
}
