/// Finds where in an event something is, for what a refusal says: `properties.cart[2].price`.
///
/// Reads leniently, as ``LenientScan`` does, and only events that are refused already.
struct EventPath {
    private struct Level {
        var isObject: Bool
        /// Of the member that is being read; nil in an array and before the first one.
        var key: Range<Int>?
        var index = 0
    }

    private let bytes: UnsafeBufferPointer<UInt8>
    private var levels: [Level] = []
    private var position = 0
    /// The member that takes most, of the event or of its properties.
    private var largest: (path: String, count: Int)?

    /// Reads up to a position, or to the end.
    private init(_ bytes: UnsafeBufferPointer<UInt8>, upTo end: Int) {
        self.bytes = bytes
        while position < min(end, bytes.count) { step() }
    }

    /// What is read at a position, of an event that begins the bytes; empty for the event itself.
    static func path(to position: Int, in bytes: UnsafeBufferPointer<UInt8>) -> String { EventPath(bytes, upTo: position).path }

    static func largest(in bytes: UnsafeBufferPointer<UInt8>) -> (path: String, count: Int)? { EventPath(bytes, upTo: bytes.count).largest }

    private mutating func step() {
        defer { position += 1 }
        switch bytes[position] {
        case UInt8(ascii: "\""):
            let start = position
            position += 1
            while position < bytes.count, bytes[position] != UInt8(ascii: "\"") {
                position += bytes[position] == UInt8(ascii: "\\") ? 2 : 1
            }
            guard let level = levels.indices.last, levels[level].isObject, levels[level].key == nil else { return }
            levels[level].key = start + 1..<min(position, bytes.count)
        case UInt8(ascii: "{"): levels.append(Level(isObject: true))
        case UInt8(ascii: "["): levels.append(Level(isObject: false))
        case UInt8(ascii: "}"), UInt8(ascii: "]"):
            measure()
            _ = levels.popLast()
        case UInt8(ascii: ","):
            measure()
            guard let level = levels.indices.last else { return }
            levels[level].key = nil
            levels[level].index += 1
        default: break
        }
    }

    /// A member has ended.
    private mutating func measure() {
        guard let key = levels.last?.key, levels.count == 1 || levels.count == 2 && name(0) == "properties" else { return }
        guard levels.count == 2 || name(0) != "properties" else { return }
        let count = position - key.lowerBound + 1
        if count > largest?.count ?? 0 { largest = (path, count) }
    }

    private static let nameBytes = 60

    /// As it is written, so that no control character is in it.
    private func name(_ level: Int) -> String {
        levels[level].key.map { String(decoding: bytes[$0].prefix(Self.nameBytes), as: UTF8.self) } ?? ""
    }

    private var path: String {
        levels.indices.reduce(into: "") { path, index in
            if !levels[index].isObject {
                path += "[\(levels[index].index)]"
            } else if levels[index].key != nil {
                path += (path.isEmpty ? "" : ".") + name(index)
            }
        }
    }
}

extension EventProblem {
    /// The same with the place of the value that it is about.
    ///
    /// - Parameter position: Where reading ended, or what was written was replaced.
    func located(at position: Int, in bytes: [UInt8]) -> EventProblem {
        bytes.withUnsafeBufferPointer { located(at: position, in: $0) }
    }

    func located(at position: Int, in bytes: UnsafeBufferPointer<UInt8>) -> EventProblem {
        switch reason {
        case .nulCharacter, .loneSurrogate, .invalidUTF8, .invalidNumber, .tooDeep, .tooManyKeys:
            let path = EventPath.path(to: position, in: bytes)
            return path.isEmpty ? self : EventProblem(reason, detail: "\(detail): \(path)")
        case .eventTooLarge:
            guard let (path, count) = EventPath.largest(in: bytes) else { return self }
            return EventProblem(reason, detail: "\(detail); \(path) takes \(count) of them")
        default: return self
        }
    }
}
