/// The value of a property: anything that JSON can hold.
///
/// Integers and floating-point numbers are kept apart so that a 64-bit integer survives unrounded.
public enum PropertyValue: Hashable, Sendable {
    /// `null`.
    case null
    /// `true` or `false`.
    case bool(Bool)
    /// A whole number, unrounded.
    case integer(Int64)
    /// JSON cannot hold infinities and NaN: an event with one becomes a dead letter.
    case double(Double)
    /// Any other number, as JSON text (RFC 8259 §6), so that it keeps all its digits. If the text is not a number, the event becomes a dead
    /// letter.
    case number(String)
    /// A text; its escaped form counts towards the event's bytes.
    case string(String)
    /// A list; one level of ``EventLimits/maximumDepth``.
    case array([PropertyValue])
    /// Values by key; one level of ``EventLimits/maximumDepth``, up to ``EventLimits/maximumKeysPerObject`` keys.
    case object([String: PropertyValue])
}

extension PropertyValue: ExpressibleByStringLiteral, ExpressibleByStringInterpolation, ExpressibleByIntegerLiteral,
    ExpressibleByFloatLiteral, ExpressibleByBooleanLiteral, ExpressibleByNilLiteral, ExpressibleByArrayLiteral,
    ExpressibleByDictionaryLiteral
{
    public init(stringLiteral value: String) { self = .string(value) }
    public init(integerLiteral value: Int64) { self = .integer(value) }
    public init(floatLiteral value: Double) { self = .double(value) }
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    public init(nilLiteral: ()) { self = .null }
    public init(arrayLiteral elements: PropertyValue...) { self = .array(elements) }
    /// The last of repeated keys wins, as in JSON.
    public init(dictionaryLiteral elements: (String, PropertyValue)...) {
        self = .object(Dictionary(elements, uniquingKeysWith: { $1 }))
    }
}
