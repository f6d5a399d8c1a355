import Foundation
import HapaxModel

/// What debug mode adds to a client (R59): each event is shown once it is stored, and uploaded alone and at once.
///
/// The one place where events are printed (I14).
struct DebugMode: Sendable {
    let output: @Sendable (String) -> Void

    /// On standard error, where a program's own output is not disturbed.
    static let standardError: @Sendable (String) -> Void = { text in
        // An output that is closed is no reason to end the host.
        try? FileHandle.standardError.write(contentsOf: Data((text + "\n").utf8))
    }

    /// After their commit, on the writer's thread.
    func stored(_ events: [PreparedEvent], _ appended: QueueFile.Appended) {
        for (index, event) in events.enumerated() where appended.sequences[index] != nil {
            let text = Self.readable(event.bytes)
            output(appended.deadLetters[index].map { "dead letter: \($0.reason)\n" + text } ?? text)
        }
    }

    /// The same JSON on many lines. What stands between the structure is left as it is: these are the bytes that travel.
    static func readable(_ json: [UInt8]) -> String {
        var text: [UInt8] = []
        text.reserveCapacity(json.count * 2)
        var depth = 0
        var isInString = false
        var isEscaped = false
        for (index, byte) in json.enumerated() {
            if isInString {
                text.append(byte)
                if isEscaped {
                    isEscaped = false
                } else if byte == UInt8(ascii: "\\") {
                    isEscaped = true
                } else {
                    isInString = byte != quote
                }
                continue
            }
            switch byte {
            case quote:
                isInString = true
                text.append(byte)
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                text.append(byte)
                let next = index + 1 < json.count ? json[index + 1] : 0
                depth += 1
                if next != UInt8(ascii: "}") && next != UInt8(ascii: "]") { newLine() }
            case UInt8(ascii: "}"), UInt8(ascii: "]"):
                depth -= 1
                let before = index > 0 ? json[index - 1] : 0
                if before != UInt8(ascii: "{") && before != UInt8(ascii: "[") { newLine() }
                text.append(byte)
            case UInt8(ascii: ","):
                text.append(byte)
                newLine()
            case UInt8(ascii: ":"): text += [byte, UInt8(ascii: " ")]
            default: text.append(byte)
            }
        }
        return String(decoding: text, as: UTF8.self)

        func newLine() {
            text.append(UInt8(ascii: "\n"))
            text += [UInt8](repeating: UInt8(ascii: " "), count: max(depth, 0) * 2)
        }
    }

    private static let quote = UInt8(ascii: "\"")
}
