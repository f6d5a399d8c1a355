/// Properties that many events share, written once; see ``Event/encoded(over:)``. A class, so that an event only refers to them.
package final class EncodedProperties: Sendable {
    struct Member: Sendable {
        var name: SortedNames.Name
        /// The name, a colon and the value.
        var bytes: [UInt8]
    }

    /// In the order of their names.
    let members: [Member]
    let extent: JSONWriter.Extent
    let unencodable: EventProblem?
    /// Bytes that the members take in an event.
    package let byteCount: Int

    package static let none = EncodedProperties([:])

    package init(_ properties: Properties) {
        var members: [Member] = []
        var extent = JSONWriter.Extent()
        var unencodable: EventProblem?
        SortedNames.forEach(of: properties) { name, index in
            var writer = JSONWriter()
            writer.string(name.text)
            writer.byte(UInt8(ascii: ":"))
            writer.value(properties[index].value, depth: 3)
            members.append(Member(name: name, bytes: writer.bytes))
            extent.formUnion(writer.extent)
            if unencodable == nil { unencodable = writer.unencodable }
        }
        self.members = members
        self.extent = extent
        self.unencodable = unencodable
        byteCount = members.reduce(0) { $0 + $1.bytes.count + 1 }
    }

}
