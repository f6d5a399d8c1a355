/// Where the fields of one scanned event are in its body. Ranges, since slices would each count a reference to the body.
package struct EventFields: Sendable {
    /// A text in a body; it holds no reference, so that an event's fields are moved as plain values.
    package struct Text: Sendable {
        enum Writing {
            /// As it is.
            case plain
            case escaped
            /// Not written: it stands for an empty object.
            case absent
        }

        var range: Range<Int>
        var writing = Writing.plain

        static let none = Text(range: 0..<0)

        /// - Parameter body: The whole body.
        @inline(__always)
        package func withBytes<Value>(of body: UnsafeBufferPointer<UInt8>, _ use: (UnsafeBufferPointer<UInt8>) -> Value) -> Value {
            if writing == .plain { return use(UnsafeBufferPointer(rebasing: body[range])) }
            return withRewritten(body, use)
        }

        private func withRewritten<Value>(_ body: UnsafeBufferPointer<UInt8>, _ use: (UnsafeBufferPointer<UInt8>) -> Value) -> Value {
            let object: StaticString = "{}"
            if writing == .absent { return use(UnsafeBufferPointer(start: object.utf8Start, count: object.utf8CodeUnitCount)) }
            return JSONCursor(body).withUnescaped(JSONCursor.Text(range: range, hasEscapes: true), use)
        }

        func slice(of body: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
            guard writing == .plain else { return body.withUnsafeBufferPointer { withRewritten($0) { Array($0) } }[...] }
            return body[body.startIndex + range.lowerBound..<body.startIndex + range.upperBound]
        }
    }

    /// The event's own id, even if the event has another problem; nil if no id can be read.
    package var id: EventID?
    package var name = Text.none
    package var distinctID = Text.none
    /// Unix milliseconds.
    package var time: Int64 = 0
    /// nil if it has none.
    package var sequence: Int64?
    /// A JSON object, as it was sent.
    package var properties = Text.none
    /// The whole event, as it was sent.
    package var wire: Range<Int> = 0..<0
    /// Why it cannot be stored; the fields above then hold what could be read.
    package var problem: EventProblem?

    /// The value that is stored for an event without `properties`.
    static let noProperties = Text(range: 0..<0, writing: .absent)

    /// The event with slices of the body.
    package func event(in body: ArraySlice<UInt8>) -> ScannedEvent {
        ScannedEvent(
            id: id, name: name.slice(of: body), distinctID: distinctID.slice(of: body), time: time, sequence: sequence,
            properties: properties.slice(of: body),
            wire: body[body.startIndex + wire.lowerBound..<body.startIndex + wire.upperBound], problem: problem)
    }

    /// A hash of name, user and properties as they were sent. Events under one id whose fingerprints differ are compared by value.
    @inline(__always)
    package static func fingerprint(
        name: UnsafeRawBufferPointer, distinctID: UnsafeRawBufferPointer, properties: UnsafeRawBufferPointer
    ) -> Int64 {
        let whose = XXH64.hash(distinctID, seed: XXH64.hash(name, seed: 0))
        return Int64(bitPattern: XXH64.hash(properties, seed: whose))
    }
}
