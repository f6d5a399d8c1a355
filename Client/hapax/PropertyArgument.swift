import ArgumentParser
import Foundation
import HapaxModel

/// One `--property`: `name=text`, or `name:=json` for a value of another type.
struct PropertyArgument: Hashable {
    var name: String
    var value: PropertyValue

    /// To be called by `validate()`: the parser's own messages repeat the whole argument.
    ///
    /// - Throws: What is wrong, without the value, which may be a secret (I14).
    static func parse(_ argument: String) throws -> PropertyArgument {
        if let property = PropertyArgument(argument: argument) { return property }
        guard let sign = argument.firstIndex(of: "="), sign != argument.startIndex else {
            throw ValidationError("A property is name=text or name:=json.")
        }
        let name = argument[..<sign].dropLast()
        throw ValidationError("The value of property '\(name)' is not JSON that an event may hold.")
    }

    init?(argument: String) {
        guard let sign = argument.firstIndex(of: "="), sign != argument.startIndex else { return nil }
        let before = argument.index(before: sign)
        let text = String(argument[argument.index(after: sign)...])
        guard argument[before] == ":" else {
            name = String(argument[..<sign])
            value = .string(text)
            return
        }
        guard before != argument.startIndex, let value = Self.value(json: text) else { return nil }
        name = String(argument[..<before])
        self.value = value
    }

    /// A JSON value that an event may hold.
    static func value(json text: String) -> PropertyValue? {
        // The scanner knows what an event may hold; above all it bounds the depth, and the decoder below recurses.
        let id = EventID.derived(name: "", key: "")
        let event = #"{"event_id":"\#(id)","event":"e","time":0,"distinct_id":"u","properties":{"value":\#(text)}}"#
        guard EventScanner.check(Array(event.utf8)) == nil,
            let wrapped = try? JSONDecoder().decode([JSONValue].self, from: Data("[\(text)]".utf8)), wrapped.count == 1
        else { return nil }
        return wrapped[0].value
    }
}

private struct JSONValue: Decodable {
    var value: PropertyValue

    init(from decoder: any Decoder) throws {
        if let container = try? decoder.container(keyedBy: Key.self) {
            var object: Properties = [:]
            for key in container.allKeys { object[key.stringValue] = try container.decode(JSONValue.self, forKey: key).value }
            value = .object(object)
            return
        }
        if var container = try? decoder.unkeyedContainer() {
            var array: [PropertyValue] = []
            while !container.isAtEnd { array.append(try container.decode(JSONValue.self).value) }
            value = .array(array)
            return
        }
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            value = .null
        } else if let bool = try? container.decode(Bool.self) {
            value = .bool(bool)
        } else if let integer = try? container.decode(Int64.self) {
            value = .integer(integer)
        } else if let double = try? container.decode(Double.self) {
            // An integer of so many digits that a double would be another one is refused, not rounded.
            if double.magnitude >= 0x1p53, let exact = try? container.decode(Decimal.self), exact != Decimal(string: "\(double)") {
                throw DecodingError.dataCorruptedError(in: container, debugDescription: "more digits than a number can keep")
            }
            value = .double(double)
        } else {
            value = .string(try container.decode(String.self))
        }
    }

    private struct Key: CodingKey {
        var stringValue: String
        var intValue: Int? { nil }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }
}
