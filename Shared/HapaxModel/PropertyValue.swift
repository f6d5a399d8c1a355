/// The value of a property: anything that JSON can hold.
///
/// Integers and floating-point numbers are kept apart so that a 64-bit integer survives unrounded. They are equal if their values are, as for
/// the server: `1` and `1.0` are one.
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

    public static func == (left: PropertyValue, right: PropertyValue) -> Bool {
        switch (left, right) {
        case (.null, .null): true
        case (.bool(let left), .bool(let right)): left == right
        case (.integer(let left), .integer(let right)): left == right
        case (.double(let left), .double(let right)): left == right
        case (.integer(let whole), .double(let number)), (.double(let number), .integer(let whole)): Int64(exactly: number) == whole
        case (.number(let left), .number(let right)): left == right
        case (.string(let left), .string(let right)): left == right
        case (.array(let left), .array(let right)): left == right
        case (.object(let left), .object(let right)): left == right
        default: false
        }
    }

    public func hash(into hasher: inout Hasher) {
        switch self {
        case .null: hasher.combine(0)
        case .bool(let value): hasher.combine(value)
        case .integer(let value): hasher.combine(value)
        case .double(let value): if let whole = Int64(exactly: value) { hasher.combine(whole) } else { hasher.combine(value) }
        case .number(let value), .string(let value): hasher.combine(value)
        case .array(let value): hasher.combine(value)
        case .object(let value): hasher.combine(value)
        }
    }
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
