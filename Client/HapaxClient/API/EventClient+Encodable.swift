import Foundation
import HapaxModel

/// Properties of a type of the app's own.
extension EventClient {
    /// As ``track(_:properties:id:time:distinctID:)``, with the members of `properties` as JSON: `Date` as Unix milliseconds, `Data` in base64.
    ///
    /// - Throws: `EncodingError` if they are no JSON object; nothing has been tracked then.
    @discardableResult @_disfavoredOverload
    public func track(
        _ name: String, properties: some Encodable, id: EventID? = nil, time: Date? = nil, distinctID: String? = nil
    ) throws -> EventID? {
        track(name, properties: try Properties(encoding: properties), id: id, time: time, distinctID: distinctID)
    }

    /// As ``trackDurably(_:properties:id:time:distinctID:)``, with the members of `properties` as JSON: `Date` as Unix milliseconds, `Data` in base64.
    ///
    /// - Throws: ``TrackError``, or `EncodingError` if they are no JSON object; nothing has been tracked then.
    @discardableResult @_disfavoredOverload
    public func trackDurably(
        _ name: String, properties: some Encodable, id: EventID? = nil, time: Date? = nil, distinctID: String? = nil
    ) async throws -> EventID {
        try await trackDurably(name, properties: try Properties(encoding: properties), id: id, time: time, distinctID: distinctID)
    }
}

extension Properties {
    /// - Throws: `EncodingError` for what is no object, or what JSON cannot say.
    package init(encoding value: some Encodable) throws {
        let encoder = JSONEncoder()
        encoder.dateEncodingStrategy = .millisecondsSince1970
        let json = String(decoding: try encoder.encode(value), as: UTF8.self)
        guard case .object(let members) = try PropertyValue(json: json) else {
            throw EncodingError.invalidValue(value, .init(codingPath: [], debugDescription: "properties have to be an object"))
        }
        self = members
    }
}
