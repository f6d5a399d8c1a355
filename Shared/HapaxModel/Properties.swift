import Foundation

/// An event's properties by name.
///
/// A literal takes plain variables of every ``PropertyValueConvertible`` type, optional ones as well: nil leaves the name out.
///
///     ["order": order.id, "amount": order.amount, "coupon": order.coupon, "items": order.items.count]
///
/// `PropertyValue.null` is JSON's null. An inner literal that mixes types must name its own type: `["a", 1] as PropertyValue`,
/// `["name": name, "age": age] as Properties`.
public struct Properties: Sendable {
    package typealias Member = (key: String, value: PropertyValue)

    /// In the order given; of a repeated name the last one counts. A list, since a dictionary takes twice as long to make.
    package private(set) var members: [Member] = []
    private var failure: Failure?

    /// A class, so that properties stay small: they are copied often and rarely have a failure.
    private final class Failure: Sendable {
        let problem: EventProblem
        /// What could be encoded of the value, as JSON; its dead letter holds this in place of the properties.
        let json: [UInt8]?
        init(_ problem: EventProblem, _ json: [UInt8]?) { (self.problem, self.json) = (problem, json) }
    }

    /// Why the encoded value gave no properties; its event becomes a dead letter with this reason.
    package var problem: EventProblem? { failure?.problem }

    /// What could be encoded of such a value, as JSON.
    package var jsonOfProblem: [UInt8]? { failure?.json }

    /// No properties.
    public init() {}

    /// Values of one type by name.
    public init(_ values: [String: some PropertyValueConvertible]) {
        members = values.map { ($0.key, $0.value.propertyValue) }
    }

    /// The members of a value encoded as JSON: `Date` as Unix milliseconds, `Data` in base64.
    ///
    /// A value that does not encode to an object gives no properties, and its event becomes a dead letter `invalid_properties`, which holds the
    /// JSON in their place. If JSON cannot hold the value (a number that is not finite), the dead letter holds it as a JSON string.
    public init(encoding value: some Encodable) {
        let encoder = JSONEncoder()
        var json: [UInt8]?
        // Whole milliseconds, as for a date in a literal.
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            guard case .integer(let milliseconds) = date.propertyValue else {
                throw EventProblem(.invalidProperties, detail: "a date is beyond all years\(Self.place(encoder.codingPath))")
            }
            try container.encode(milliseconds)
        }
        do {
            json = [UInt8](try encoder.encode(value))
            guard case .object(let object) = try PropertyValue(json: String(decoding: json ?? [], as: UTF8.self)) else {
                throw EventProblem(.invalidProperties, detail: "what is encoded is no object")
            }
            members = object.map { ($0.key, $0.value) }
        } catch {
            // The encoder's own error text may quote the value.
            let problem =
                error as? EventProblem
                ?? EventProblem(.invalidProperties, detail: "the value cannot be encoded as JSON\(Self.place(of: error))")
            failure = Failure(problem, json ?? Self.text(of: value, encoder))
        }
    }

    private static func place(of error: any Error) -> String {
        if case EncodingError.invalidValue(_, let context) = error { place(context.codingPath) } else { "" }
    }

    private static func place(_ path: [any CodingKey]) -> String {
        path.isEmpty ? "" : path.reduce(": properties") { $0 + ($1.intValue.map { "[\($0)]" } ?? ".\($1.stringValue)") }
    }

    /// The value's JSON with substitutes for dates and non-finite numbers, as one JSON string: it cannot be taken for properties and sent.
    private static func text(of value: some Encodable, _ encoder: JSONEncoder) -> [UInt8]? {
        encoder.dateEncodingStrategy = .deferredToDate
        encoder.nonConformingFloatEncodingStrategy = .convertToString(positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
        guard let json = try? encoder.encode(value) else { return nil }
        var writer = JSONWriter()
        writer.string(String(decoding: json, as: UTF8.self))
        return writer.bytes
    }

    /// How many names there are.
    public var count: Int { byName.count }

    /// Whether there are none.
    public var isEmpty: Bool { members.isEmpty }

    /// All of them as a dictionary.
    public var byName: [String: PropertyValue] { Dictionary(members.map { ($0.key, $0.value) }, uniquingKeysWith: { $1 }) }

    /// The value of a name; setting nil removes the name.
    public subscript(_ name: String) -> PropertyValue? {
        get { members.last { $0.key == name }?.value }
        set {
            members.removeAll { $0.key == name }
            if let newValue { members.append((name, newValue)) }
        }
    }

    /// The same for a value of any convertible type.
    @_disfavoredOverload
    public subscript(_ name: String) -> (any PropertyValueConvertible)? {
        get { self[name] as PropertyValue? }
        set { self[name] = newValue?.propertyValue }
    }

    /// Adds other properties, whose value counts under an equal name.
    public mutating func merge(_ other: Properties) {
        if members.isEmpty {
            members = other.members
        } else {
            var all = byName
            for member in other.members { all[member.key] = member.value }
            members = all.map { ($0.key, $0.value) }
        }
        failure = failure ?? other.failure
    }

    /// A copy with other properties merged in.
    public func merging(_ other: Properties) -> Properties {
        var merged = self
        merged.merge(other)
        return merged
    }
}

extension Properties: ExpressibleByDictionaryLiteral {
    /// The last of repeated names wins, as in JSON.
    public init(dictionaryLiteral elements: (String, (any PropertyValueConvertible)?)...) {
        members = [Member](unsafeUninitializedCapacity: elements.count) { members, count in
            elements.withUnsafeBytes { bytes in
                for start in stride(from: 0, to: bytes.count, by: MemoryLayout<Element>.stride) {
                    guard let element = bytes.baseAddress?.advanced(by: start) else { return }
                    let name = element.advanced(by: Self.offsetOfName).assumingMemoryBound(to: String.self)
                    let value = element.advanced(by: Self.offsetOfValue).assumingMemoryBound(to: (any PropertyValueConvertible)?.self)
                    guard let value = value.pointee?.propertyValue else { continue }
                    members.initializeElement(at: count, to: (name.pointee, value))
                    count += 1
                }
            }
        }
    }

    // Elements are read in place: a loop copies each pair through the runtime, which takes as long as all other work here
    // (https://developer.apple.com/documentation/swift/memorylayout/offset(of:)).
    private typealias Element = (String, (any PropertyValueConvertible)?)
    private static let offsetOfName = MemoryLayout<Element>.offset(of: \.0) ?? 0
    private static let offsetOfValue = MemoryLayout<Element>.offset(of: \.1) ?? MemoryLayout<String>.stride
}

extension Properties: PropertyValueConvertible {
    public var propertyValue: PropertyValue { .object(byName) }
}

extension Properties: Hashable {
    public static func == (left: Properties, right: Properties) -> Bool {
        left.byName == right.byName && left.problem == right.problem
    }

    public func hash(into hasher: inout Hasher) { hasher.combine(byName) }
}
