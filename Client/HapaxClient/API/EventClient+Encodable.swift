import Foundation
import HapaxModel

/// Properties of a type of the app's own.
extension EventClient {
    /// As ``track(_:properties:id:time:distinctID:)``, with the members of `value` as JSON: `Date` as Unix milliseconds, `Data` in base64.
    ///
    /// - Parameter value: One that is no JSON object makes the event a dead letter `invalid_properties`.
    @discardableResult
    public func track(
        _ name: String, encoding value: some Encodable, id: EventID? = nil, time: Date? = nil, distinctID: String? = nil
    ) -> EventID? {
        track(name, properties: Properties(encoding: value), id: id, time: time, distinctID: distinctID)
    }

    /// As ``trackDurably(_:properties:id:time:distinctID:)``, with the members of `value` as JSON: `Date` as Unix milliseconds, `Data` in base64.
    ///
    /// - Parameter value: One that is no JSON object makes the event a dead letter `invalid_properties`.
    /// - Throws: ``TrackError``.
    @discardableResult
    public func trackDurably(
        _ name: String, encoding value: some Encodable, id: EventID? = nil, time: Date? = nil, distinctID: String? = nil
    ) async throws(TrackError) -> EventID {
        try await trackDurably(name, properties: Properties(encoding: value), id: id, time: time, distinctID: distinctID)
    }
}
