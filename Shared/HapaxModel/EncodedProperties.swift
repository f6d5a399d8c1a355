/// Properties that many events share, written once; see ``Event/encoded(over:)``. A class, so that an event only refers to them.
package final class EncodedProperties: Sendable {
    struct Member: Sendable {
        var name: SortedNames.Name
        /// The name, a colon and the value.
        var bytes: [UInt8]
        /// Why the bytes are not all of the value; of no matter to an event that has its own value.
        var unencodable: EventProblem?
    }

    /// In the order of their names.
    let members: [Member]
    let extent: JSONWriter.Extent
    /// Bytes that the members take in an event.
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
            members.append(Member(name: name, bytes: writer.bytes, unencodable: writer.unencodable))
            extent.formUnion(writer.extent)
        }
        self.members = members
        self.extent = extent
        byteCount = members.reduce(0) { $0 + $1.bytes.count + 1 }
    }

}
