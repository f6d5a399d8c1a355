/// Finds the end and the id of an event that is not valid JSON, so that other events can still be read.
///
/// Skips strings with their escapes and requires brackets to pair by kind; ignores everything else.
struct LenientScan {
    private let bytes: UnsafeBufferPointer<UInt8>

    init(_ bytes: UnsafeBufferPointer<UInt8>) {
        self.bytes = bytes
    }

    /// Where the value that begins at `start` ends; nil if its brackets do not pair or its strings do not end.
    func endOfValue(from start: Int) -> Int? {
        var open: [UInt8] = []
        var position = start
        while position < bytes.count {
            let byte = bytes[position]
            switch byte {
            case UInt8(ascii: "\""):
                guard let end = endOfString(from: position) else { return nil }
                position = end
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                open.append(byte + 2)  // In ASCII, both closing brackets come two after their opening ones.
                position += 1
            case UInt8(ascii: "}"), UInt8(ascii: "]"):
                guard let expected = open.popLast() else { return position }
                guard expected == byte else { return nil }
                position += 1
                if open.isEmpty { return position }
            case UInt8(ascii: ",") where open.isEmpty:
                return position
            default:
                position += 1
            }
        }
        return open.isEmpty ? position : nil
    }

    /// The last `event_id` of the object that begins at `start`, if it can be read. nil if no object begins there: an id that follows
    /// belongs to another event.
    func eventID(from start: Int) -> EventID? {
        guard start < bytes.count, bytes[start] == UInt8(ascii: "{") else { return nil }
        var depth = 0
        var position = start
        var id: EventID?
        while position < bytes.count {
            switch bytes[position] {
            case UInt8(ascii: "\""):
                guard let end = endOfString(from: position) else { return id }
                var cursor = JSONCursor(bytes, at: position)
                if depth == 1, let key = try? cursor.string(), cursor.equals(key, "event_id") {
                    cursor.skipWhitespace()
                    if cursor.skip(UInt8(ascii: ":")) {
                        cursor.skipWhitespace()
                        id = (try? cursor.string()).flatMap { text in
                            cursor.unescaped(text).withUnsafeBufferPointer { EventID(utf8: $0) }
                        }
                        // Go on after the key: the loop skips the value like any other.
                    }
                }
                position = end
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                depth += 1
                position += 1
            case UInt8(ascii: "}"), UInt8(ascii: "]"):
                depth -= 1
                position += 1
                if depth <= 0 { return id }
            default:
                position += 1
            }
        }
        return id
    }

    private func endOfString(from start: Int) -> Int? {
        var position = start + 1
        while position < bytes.count {
            switch bytes[position] {
            case UInt8(ascii: "\\"): position += 2
            case UInt8(ascii: "\""): return position + 1
            default: position += 1
            }
        }
        return nil
    }
}
