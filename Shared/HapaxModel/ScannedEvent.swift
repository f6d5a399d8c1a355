/// One event found in a body: its fields taken out, its properties left as the bytes that came.
public struct ScannedEvent: Sendable {
    /// Its own id, also when something else about it is wrong; nil if it has none that can be read.
    public var id: EventID?
    /// Unescaped UTF-8.
    public var name: ArraySlice<UInt8>
    /// Unescaped UTF-8.
    public var distinctID: ArraySlice<UInt8>
    /// Unix milliseconds.
    public var time: Int64
    /// nil if it has none.
    public var sequence: Int64?
    /// A JSON object, as it was sent.
    public var properties: ArraySlice<UInt8>
    /// The whole event, as it was sent.
    public var wire: ArraySlice<UInt8>
    /// Why it cannot be stored; the fields above then hold what could be read.
    public var problem: EventProblem?
}
