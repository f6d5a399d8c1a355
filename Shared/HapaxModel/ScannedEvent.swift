/// One event found in a body: its fields taken out, its properties left as the bytes that came.
package struct ScannedEvent: Sendable {
    /// Its own id, also when something else about it is wrong; nil if it has none that can be read.
    package var id: EventID?
    /// Unescaped UTF-8.
    package var name: ArraySlice<UInt8>
    /// Unescaped UTF-8.
    package var distinctID: ArraySlice<UInt8>
    /// Unix milliseconds.
    package var time: Int64
    /// nil if it has none.
    package var sequence: Int64?
    /// A JSON object, as it was sent.
    package var properties: ArraySlice<UInt8>
    /// The whole event, as it was sent.
    package var wire: ArraySlice<UInt8>
    /// Why it cannot be stored; the fields above then hold what could be read.
    package var problem: EventProblem?
}
