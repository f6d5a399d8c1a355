/// Where the fields of one event are in the body that holds it: what a scan finds, without a reference to the body.
package struct EventFields: Sendable {
    /// A text in a body.
    package struct Text: Sendable {
        var range: Range<Int>
        /// Unescaped UTF-8, if it was written with escapes.
        var unescaped: [UInt8]?

        static let none = Text(range: 0..<0)

        var count: Int { unescaped?.count ?? range.count }

        /// - Parameter body: The whole body.
        @inline(__always)
        package func withBytes<Value>(of body: UnsafeBufferPointer<UInt8>, _ use: (UnsafeBufferPointer<UInt8>) -> Value) -> Value {
            guard let unescaped else { return use(UnsafeBufferPointer(rebasing: body[range])) }
            return unescaped.withUnsafeBufferPointer(use)
        }

        func slice(of body: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
            unescaped?[...] ?? body[body.startIndex + range.lowerBound..<body.startIndex + range.upperBound]
        }
    }

    /// Its own id, also when something else about it is wrong; nil if it has none that can be read.
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

    /// What an event without `properties` is stored with.
    static let noProperties = Text(range: 0..<0, unescaped: Array("{}".utf8))

    /// The event by itself.
    package func event(in body: ArraySlice<UInt8>) -> ScannedEvent {
        ScannedEvent(
            id: id, name: name.slice(of: body), distinctID: distinctID.slice(of: body), time: time, sequence: sequence,
            properties: properties.slice(of: body),
            wire: body[body.startIndex + wire.lowerBound..<body.startIndex + wire.upperBound], problem: problem)
    }

    /// A hash over what was sent, which is the same for the same bytes; events with another one are compared by value (``ValueHash``).
    @inline(__always)
    package static func fingerprint(
        name: UnsafeRawBufferPointer, distinctID: UnsafeRawBufferPointer, properties: UnsafeRawBufferPointer
    ) -> Int64 {
        let whose = XXH64.hash(distinctID, seed: XXH64.hash(name, seed: 0))
        return Int64(bitPattern: XXH64.hash(properties, seed: whose))
    }
}
