/// Properties that many events share, encoded once; see ``Event/encoded(over:)``. A class, so that events refer to them without a copy.
package final class EncodedProperties: Sendable {
    struct Member: Sendable {
        var name: SortedNames.Name
        /// The name, a colon and the value, as JSON.
        var bytes: [UInt8]
        /// Why JSON cannot hold the value, and where in the bytes; ignored for an event that has a value of its own under this name.
        var unencodable: (problem: EventProblem, position: Int)?
    }

    /// Sorted by the bytes of their names.
    let members: [Member]
    let extent: JSONWriter.Extent
    /// Bytes that the members take in an event, commas included.
    package let byteCount: Int

    package static let none = EncodedProperties([:])

    package init(_ properties: Properties) {
        var members: [Member] = []
        var extent = JSONWriter.Extent()
        SortedNames.forEach(of: properties.members) { name, value in
            var writer = JSONWriter()
            writer.string(name.text)
            writer.byte(UInt8(ascii: ":"))
            writer.value(value, depth: 3)
            members.append(Member(name: name, bytes: writer.bytes, unencodable: writer.unencodableValue))
            extent.formUnion(writer.extent)
        }
        self.members = members
        self.extent = extent
        byteCount = members.reduce(0) { $0 + $1.bytes.count + 1 }
    }

    /// As a JSON object.
    package var json: String {
        var writer = JSONWriter()
        writer.object([:], over: self)
        return String(decoding: writer.bytes, as: UTF8.self)
    }
}

extension Properties {
    /// nil for a text that is no JSON object, or one that no event may hold.
    package init?(json: String) {
        guard case .object(let members)? = try? PropertyValue(json: json) else { return nil }
        self.init(members)
    }
}
