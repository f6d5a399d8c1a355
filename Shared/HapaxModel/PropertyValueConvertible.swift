import Foundation

/// A type whose values can be property values: texts, numbers, truth values, dates, ids, URLs, and arrays, sets and dictionaries of them.
///
/// A type of your own with such a raw value needs no code: `enum Plan: String, PropertyValueConvertible { … }`.
public protocol PropertyValueConvertible {
    /// The value as JSON holds it.
    var propertyValue: PropertyValue { get }
}

extension PropertyValue: PropertyValueConvertible { public var propertyValue: PropertyValue { self } }

extension String: PropertyValueConvertible { public var propertyValue: PropertyValue { .string(self) } }
extension Substring: PropertyValueConvertible { public var propertyValue: PropertyValue { .string(String(self)) } }
extension Bool: PropertyValueConvertible { public var propertyValue: PropertyValue { .bool(self) } }

extension Int: PropertyValueConvertible { public var propertyValue: PropertyValue { .integer(Int64(self)) } }
extension Int8: PropertyValueConvertible { public var propertyValue: PropertyValue { .integer(Int64(self)) } }
extension Int16: PropertyValueConvertible { public var propertyValue: PropertyValue { .integer(Int64(self)) } }
extension Int32: PropertyValueConvertible { public var propertyValue: PropertyValue { .integer(Int64(self)) } }
extension Int64: PropertyValueConvertible { public var propertyValue: PropertyValue { .integer(self) } }
extension UInt8: PropertyValueConvertible { public var propertyValue: PropertyValue { .integer(Int64(self)) } }
extension UInt16: PropertyValueConvertible { public var propertyValue: PropertyValue { .integer(Int64(self)) } }
extension UInt32: PropertyValueConvertible { public var propertyValue: PropertyValue { .integer(Int64(self)) } }
extension UInt: PropertyValueConvertible { public var propertyValue: PropertyValue { UInt64(self).propertyValue } }
extension UInt64: PropertyValueConvertible {
    /// Exact, also above `Int64.max`.
    public var propertyValue: PropertyValue { Int64(exactly: self).map { .integer($0) } ?? .number("\(self)") }
}

extension Double: PropertyValueConvertible { public var propertyValue: PropertyValue { .double(self) } }
extension Float: PropertyValueConvertible {
    /// The double with the same shortest digits: 0.1 and not 0.10000000149011612.
    public var propertyValue: PropertyValue { .double(Double("\(self)") ?? Double(self)) }
}
extension CGFloat: PropertyValueConvertible { public var propertyValue: PropertyValue { .double(Double(self)) } }
extension Decimal: PropertyValueConvertible {
    /// Keeps all digits.
    public var propertyValue: PropertyValue { isFinite ? .number(description) : .double(.nan) }
}

extension Date: PropertyValueConvertible {
    /// Unix milliseconds.
    public var propertyValue: PropertyValue {
        let milliseconds = (timeIntervalSince1970 * 1_000).rounded()
        return Int64(exactly: milliseconds).map { .integer($0) } ?? .double(milliseconds)
    }
}
extension URL: PropertyValueConvertible { public var propertyValue: PropertyValue { .string(absoluteString) } }
extension UUID: PropertyValueConvertible { public var propertyValue: PropertyValue { .string(uuidString) } }
extension EventID: PropertyValueConvertible { public var propertyValue: PropertyValue { .string(description) } }

extension Array: PropertyValueConvertible where Element: PropertyValueConvertible {
    public var propertyValue: PropertyValue { .array(map(\.propertyValue)) }
}
extension Set: PropertyValueConvertible where Element: PropertyValueConvertible {
    /// A list sorted by the JSON of its elements, so that equal sets give the same text.
    public var propertyValue: PropertyValue {
        let values = map { element in
            var writer = JSONWriter()
            writer.value(element.propertyValue, depth: 1)
            return (bytes: writer.bytes, value: element.propertyValue)
        }
        return .array(values.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }.map(\.value))
    }
}
extension Dictionary: PropertyValueConvertible where Key == String, Value: PropertyValueConvertible {
    public var propertyValue: PropertyValue { .object(mapValues(\.propertyValue)) }
}

extension PropertyValueConvertible where Self: RawRepresentable, RawValue: PropertyValueConvertible {
    public var propertyValue: PropertyValue { rawValue.propertyValue }
}
