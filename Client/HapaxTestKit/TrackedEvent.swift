import Foundation
import HapaxModel

/// An event as the client has stored it, with everything that it adds.
public struct TrackedEvent: Sendable, Hashable, CustomStringConvertible {
    /// Made by the client, or the caller's own.
    public let id: EventID
    /// What happened.
    public let name: String
    /// To the millisecond.
    public let time: Date
    /// Whom it concerns.
    public let distinctID: String
    /// Its own ones, and those that every event gets.
    public let properties: Properties
    private let json: [UInt8]

    /// A property's value; nil if it has none of that name.
    public subscript(_ name: String) -> PropertyValue? { properties[name] }

    /// Its properties as a type of yours; a date is Unix milliseconds.
    ///
    /// - Throws: `DecodingError`.
    public func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .millisecondsSince1970
        return try decoder.decode(type, from: Data(json))
    }

    /// On one line, for a test that fails.
    public var description: String { "\(name) \(String(decoding: json, as: UTF8.self)) of \(distinctID)" }

    init?(_ bytes: [UInt8]) {
        let scanned = EventScanner.scan(bytes[...])
        guard let id = scanned.id, scanned.problem == nil,
            let properties = Properties(json: String(decoding: scanned.properties, as: UTF8.self))
        else { return nil }
        self.id = id
        name = String(decoding: scanned.name, as: UTF8.self)
        time = Date(timeIntervalSince1970: Double(scanned.time) / 1_000)
        distinctID = String(decoding: scanned.distinctID, as: UTF8.self)
        self.properties = properties
        json = [UInt8](scanned.properties)
    }
}

/// Compares a property with a plain variable: `paid["amount"] == order.amount`. Without it a variable and a property would be two `AnyHashable`,
/// which are never equal.
public func == (value: PropertyValue?, other: (some PropertyValueConvertible)?) -> Bool {
    guard let value, let other = other?.propertyValue else { return value == nil && other == nil }
    return value == other
}

/// The opposite.
public func != (value: PropertyValue?, other: (some PropertyValueConvertible)?) -> Bool { !(value == other) }
