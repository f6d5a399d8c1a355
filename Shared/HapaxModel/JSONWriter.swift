/// Writes JSON (RFC 8259) into one growing buffer. Client and server write events, batches and answers with it.
///
/// It owns raw memory, because an array's checks for each of the hundred pieces of an event take longer than the rest of the encoding.
package struct JSONWriter: ~Copyable {
    private var start: UnsafeMutablePointer<UInt8>
    private var capacity: Int
    /// Bytes written so far.
    package private(set) var count = 0

    /// The problem with the first value that JSON cannot hold or that is nested too deep; a substitute was written in its place.
    package var unencodable: EventProblem? { unencodableValue?.problem }
    /// The same with the place of that substitute.
    private(set) var unencodableValue: (problem: EventProblem, position: Int)?
    /// What the values written so far mean for the limits of an event.
    private(set) var extent = Extent()

    struct Extent: Sendable {
        /// Nested objects and arrays, the event being the first.
        var depth = 1
        /// Keys of the object with the most keys.
        var keys = 0
        var hasNUL = false
        /// Whether a number was given as text; only the scanner checks its limits.
        var hasNumber = false

        mutating func formUnion(_ other: Extent) {
            depth = max(depth, other.depth)
            keys = max(keys, other.keys)
            hasNUL = hasNUL || other.hasNUL
            hasNumber = hasNumber || other.hasNumber
        }

        var obeysLimits: Bool { depth <= EventLimits.maximumDepth && keys <= EventLimits.maximumKeysPerObject && !hasNUL && !hasNumber }
    }

    /// Deeper values are not written, so that recursion cannot exhaust the stack. Far above ``EventLimits/maximumDepth``.
    private static let maximumDepth = 128

    /// - Parameter capacity: Bytes allocated at first; the buffer grows as needed.
    package init(capacity: Int = 512) {
        self.capacity = max(capacity, 64)
        start = .allocate(capacity: self.capacity)
    }

    deinit { start.deallocate() }

    package var bytes: [UInt8] { Array(UnsafeBufferPointer(start: start, count: count)) }

    /// The last byte written; 0 if there is none.
    var last: UInt8 { count > 0 ? start[count - 1] : 0 }

    // MARK: - Bytes

    /// Looks at the bytes written so far, and may change them.
    mutating func withBytes<Value>(_ body: (UnsafeMutableBufferPointer<UInt8>) -> Value) -> Value {
        body(UnsafeMutableBufferPointer(start: start, count: count))
    }

    mutating func removeLast(_ length: Int) { count -= min(length, count) }

    /// - Parameter ranges: Of the written bytes, ascending and without overlap.
    mutating func remove(_ ranges: [Range<Int>]) {
        guard var end = ranges.first?.lowerBound else { return }
        for (index, range) in ranges.enumerated() {
            let next = index + 1 < ranges.count ? ranges[index + 1].lowerBound : count
            (start + end).update(from: start + range.upperBound, count: next - range.upperBound)
            end += next - range.upperBound
        }
        count = end
    }

    /// - Returns: Room for `length` bytes, which the caller must fill: they count as written.
    @inline(__always)
    private mutating func room(_ length: Int) -> UnsafeMutablePointer<UInt8> {
        if capacity - count < length { grow(length) }
        defer { count += length }
        return start + count
    }

    private mutating func grow(_ length: Int) {
        capacity = max(capacity * 2, count + length)
        let larger = UnsafeMutablePointer<UInt8>.allocate(capacity: capacity)
        larger.update(from: start, count: count)
        start.deallocate()
        start = larger
    }

    @inline(__always)
    package mutating func byte(_ byte: UInt8) {
        room(1).pointee = byte
    }

    package mutating func raw(_ text: StaticString) {
        room(text.utf8CodeUnitCount).update(from: text.utf8Start, count: text.utf8CodeUnitCount)
    }

    /// Writes bytes that are JSON already.
    package mutating func raw(_ bytes: [UInt8]) {
        bytes.withUnsafeBufferPointer { raw($0) }
    }

    mutating func raw(_ bytes: UnsafeBufferPointer<UInt8>) {
        guard let base = bytes.baseAddress else { return }
        room(bytes.count).update(from: base, count: bytes.count)
    }

    // MARK: - Values

    package mutating func id(_ id: EventID) {
        let place = room(38)
        place[0] = UInt8(ascii: "\"")
        id.write(to: UnsafeMutableBufferPointer(start: place + 1, count: 36))
        place[37] = UInt8(ascii: "\"")
    }

    package mutating func integer(_ value: some BinaryInteger) {
        guard let small = UInt64(exactly: value) else { return text(String(value)) }
        var rest = small
        var digits = 1
        while rest >= 10 {
            digits += 1
            rest /= 10
        }
        let place = room(digits)
        rest = small
        for index in stride(from: digits - 1, through: 0, by: -1) {
            place[index] = UInt8(truncatingIfNeeded: rest % 10) + 0x30
            rest /= 10
        }
    }

    package mutating func string(_ text: String) {
        var text = text
        text.withUTF8 { string($0) }
    }

    /// - Parameter bytes: UTF-8.
    mutating func string(_ bytes: UnsafeBufferPointer<UInt8>) {
        let plain = Self.plainPrefix(bytes)
        let place = room(plain + 2)
        place[0] = UInt8(ascii: "\"")
        if let base = bytes.baseAddress { (place + 1).update(from: base, count: plain) }
        place[plain + 1] = UInt8(ascii: "\"")
        guard plain < bytes.count else { return }
        count -= 1
        escaped(bytes[plain...])
        byte(UInt8(ascii: "\""))
    }

    /// - Parameter base: Members to write as well, except those with the name of a property.
    package mutating func object(_ properties: Properties, over base: EncodedProperties = .none) {
        extent.formUnion(base.extent)
        if let problem = properties.problem { note(problem) }
        if let json = properties.jsonOfProblem { return raw(json) }
        object(properties.members, over: base.members, depth: 2)
    }

    package mutating func object(_ values: [String: PropertyValue]) {
        object(values, over: [], depth: 2)
    }

    /// - Parameter depth: How deep this value lies in its event, the event being 1.
    mutating func value(_ value: PropertyValue, depth: Int) {
        switch value {
        case .null: raw("null")
        case .bool(true): raw("true")
        case .bool(false): raw("false")
        case .integer(let number): integer(number)
        case .double(let number): double(number)
        case .number(let text): number(text)
        case .string(let text): string(text)
        case .array(let elements):
            guard descend(to: depth) else { return }
            byte(UInt8(ascii: "["))
            var first = true
            for element in elements {
                if !first { byte(UInt8(ascii: ",")) }
                first = false
                self.value(element, depth: depth + 1)
            }
            byte(UInt8(ascii: "]"))
        case .object(let properties): object(properties, over: [], depth: depth)
        }
    }

    @inline(__always)
    private mutating func object(_ properties: some Collection<Properties.Member>, over base: [EncodedProperties.Member], depth: Int) {
        guard descend(to: depth) else { return }
        byte(UInt8(ascii: "{"))
        var keys = 0
        var next = 0
        SortedNames.forEach(of: properties) { name, value in
            while next < base.count, base[next].name < name {
                member(base[next], &keys)
                next += 1
            }
            if next < base.count, base[next].name == name { next += 1 }
            if keys > 0 { byte(UInt8(ascii: ",")) }
            keys += 1
            string(name.text)
            byte(UInt8(ascii: ":"))
            self.value(value, depth: depth + 1)
        }
        while next < base.count {
            member(base[next], &keys)
            next += 1
        }
        extent.keys = max(extent.keys, keys)
        byte(UInt8(ascii: "}"))
    }

    private mutating func member(_ member: EncodedProperties.Member, _ keys: inout Int) {
        if keys > 0 { byte(UInt8(ascii: ",")) }
        keys += 1
        let start = count
        raw(member.bytes)
        if let (problem, position) = member.unencodable { note(problem, at: start + position) }
    }

    private mutating func descend(to depth: Int) -> Bool {
        extent.depth = max(extent.depth, depth)
        if depth <= Self.maximumDepth { return true }
        note(EventProblem(.tooDeep, detail: "nesting beyond \(Self.maximumDepth) was not written"))
        raw("null")
        return false
    }

    private mutating func double(_ number: Double) {
        guard number.isFinite else {
            note(.notFinite)
            return string("\(number)")
        }
        // Swift's description is the shortest text that reads back as the same double, and valid JSON for finite values.
        text(number.description)
    }

    private mutating func number(_ number: String) {
        // The scanner checks the number's length and size.
        extent.hasNumber = true
        let isNumber = Array(number.utf8).withUnsafeBufferPointer { bytes in
            var cursor = JSONCursor(bytes)
            return (try? cursor.number()) != nil && cursor.isAtEnd
        }
        guard isNumber else {
            note(.notFinite)
            return string(number)
        }
        text(number)
    }

    private mutating func note(_ problem: EventProblem, at position: Int? = nil) {
        if unencodableValue == nil { unencodableValue = (problem, position ?? count) }
    }

    // MARK: - Text

    private mutating func text(_ text: String) {
        var text = text
        text.withUTF8 { raw($0) }
    }

    private mutating func escaped(_ text: Slice<UnsafeBufferPointer<UInt8>>) {
        for byte in text {
            switch byte {
            case 0x22: raw(#"\""#)
            case 0x5C: raw(#"\\"#)
            case 0x0A: raw(#"\n"#)
            case 0x0D: raw(#"\r"#)
            case 0x09: raw(#"\t"#)
            case 0..<0x20:
                extent.hasNUL = extent.hasNUL || byte == 0
                raw(#"\u00"#)
                self.byte(byte >> 4 + 0x30)
                let digit = byte & 0xF
                self.byte(digit < 10 ? 0x30 + digit : 0x61 + digit - 10)
            default: self.byte(byte)
            }
        }
    }

    /// The number of bytes before the first that may need an escape. Checks eight bytes in one step.
    private static func plainPrefix(_ text: UnsafeBufferPointer<UInt8>) -> Int {
        guard let start = text.baseAddress else { return 0 }
        let ones: UInt64 = 0x0101_0101_0101_0101
        let tops = ones << 7
        var index = 0
        while index + 8 <= text.count {
            let eight = UnsafeRawPointer(start + index).loadUnaligned(as: UInt64.self)
            let quotes = eight ^ (ones &* 0x22)
            let backslashes = eight ^ (ones &* 0x5C)
            let found = (eight &- ones &* 0x20) & ~eight | (quotes &- ones) & ~quotes | (backslashes &- ones) & ~backslashes
            if found & tops != 0 { break }
            index += 8
        }
        while index < text.count, text[index] >= 0x20, text[index] != 0x22, text[index] != 0x5C { index += 1 }
        return index
    }
}
