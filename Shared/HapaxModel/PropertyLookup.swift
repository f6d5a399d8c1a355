/// Looks up properties in the JSON of a stored event without building values.
package enum PropertyLookup {
    /// The value of a name, as JSON: that of the key with this name, else the one at the path that its dots separate.
    ///
    /// - Parameter object: A JSON object that ``EventScanner`` has accepted, or one with such events in it; of repeated keys the last one
    ///   counts.
    /// - Returns: nil if there is no value.
    package static func value(of name: String, in object: ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
        if let value = member(Array(name.utf8), of: object) { return value }
        let path = name.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard path.count > 1 else { return nil }
        var found: ArraySlice<UInt8>? = object
        for step in path { found = found.flatMap { member(Array(step), of: $0) } }
        return found
    }

    /// The names of an object's members, unescaped; a repeated name each time.
    ///
    /// Bytes rather than `String`, which takes differently composed letters for equal.
    package static func names(in object: ArraySlice<UInt8>) -> [[UInt8]] {
        var names: [[UInt8]] = []
        forEachMember(of: object) { name, _ in names.append(name) }
        return names
    }

    /// The hash of each member's value by its name. Equal values have equal hashes, however they are written; of repeated names the last
    /// one counts.
    package static func hashes(in object: ArraySlice<UInt8>) -> [[UInt8]: UInt64] {
        var hashes: [[UInt8]: UInt64] = [:]
        forEachMember(of: object) { name, value in
            hashes[name] = ValueHash.hash(json: object[(object.startIndex + value.lowerBound)..<(object.startIndex + value.upperBound)])
        }
        return hashes
    }

    /// The elements of an array, each as it is written.
    package static func elements(of array: ArraySlice<UInt8>) -> [ArraySlice<UInt8>] {
        array.withUnsafeBufferPointer { bytes in
            var cursor = JSONCursor(bytes)
            var elements: [ArraySlice<UInt8>] = []
            cursor.skipWhitespace()
            guard cursor.skip(UInt8(ascii: "[")) else { return [] }
            cursor.skipWhitespace()
            while !cursor.isAtEnd, !cursor.skip(UInt8(ascii: "]")) {
                let start = cursor.position
                guard cursor.skipCheckedValue() else { return elements }
                elements.append(array[(array.startIndex + start)..<(array.startIndex + cursor.position)])
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ","))
                cursor.skipWhitespace()
            }
            return elements
        }
    }

    private static func member(_ name: [UInt8], of object: ArraySlice<UInt8>) -> ArraySlice<UInt8>? {
        var found: Range<Int>?
        forEachMember(of: object) { if $0 == name { found = $1 } }
        return found.map { object[(object.startIndex + $0.lowerBound)..<(object.startIndex + $0.upperBound)] }
    }

    private static func forEachMember(of object: ArraySlice<UInt8>, _ body: ([UInt8], Range<Int>) -> Void) {
        object.withUnsafeBufferPointer { bytes in
            var cursor = JSONCursor(bytes)
            cursor.skipWhitespace()
            guard cursor.skip(UInt8(ascii: "{")) else { return }
            cursor.skipWhitespace()
            while !cursor.isAtEnd, !cursor.skip(UInt8(ascii: "}")) {
                cursor.skipWhitespace()
                let name = cursor.unescaped(cursor.checkedString())
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ":"))
                cursor.skipWhitespace()
                let start = cursor.position
                guard cursor.skipCheckedValue() else { return }
                body(name, start..<cursor.position)
                cursor.skipWhitespace()
                _ = cursor.skip(UInt8(ascii: ","))
            }
        }
    }
}
