import Foundation
import HapaxModel

/// A second opinion on what JSON says: Foundation's decoder. Its `JSONSerialization` misreads some doubles by their last bit on Linux.
enum ForeignReader {
    /// - Returns: nil if it is no JSON. A number without a fraction that fits is an integer, however it is written.
    static func read(_ bytes: [UInt8]) -> PropertyValue? {
        try? JSONDecoder().decode(Read.self, from: Data(bytes)).value
    }

    private struct Read: Decodable {
        let value: PropertyValue

        init(from decoder: any Decoder) throws {
            let container = try decoder.singleValueContainer()
            if container.decodeNil() {
                value = .null
            } else if let bool = try? container.decode(Bool.self) {
                value = .bool(bool)
            } else if let integer = try? container.decode(Int64.self) {
                value = .integer(integer)
            } else if let double = try? container.decode(Double.self) {
                value = .double(double)
            } else if let text = try? container.decode(String.self) {
                value = .string(text)
            } else if let elements = try? container.decode([Read].self) {
                value = .array(elements.map(\.value))
            } else {
                value = .object(try container.decode([String: Read].self).mapValues(\.value))
            }
        }
    }
}
