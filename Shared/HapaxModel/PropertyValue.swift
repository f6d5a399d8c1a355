/// A value of an event's properties: what JSON can say.
///
/// Integers and floating-point numbers are kept apart so that a 64-bit integer survives unrounded.
public enum PropertyValue: Hashable, Sendable {
    /// `null`.
    case null
    /// `true` or `false`.
    case bool(Bool)
    /// A whole number, unrounded.
    case integer(Int64)
    /// JSON has no word for infinities and NaN: an event that holds one goes to the dead letters.
    case double(Double)
    /// Any other number, as it stands in JSON (RFC 8259 §6), so that it keeps all its digits. An event whose text is no number goes to the
    /// dead letters.
    case number(String)
    /// A text; counts towards the event's bytes as it is escaped.
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
