import HapaxModel

/// An export's lines as CSV, for spreadsheets.
struct CSVExport: Sendable {
    /// Each becomes a column; without any, all are one column of JSON.
    let properties: [String]

    private static let columns = ["event_id", "event", "time", "distinct_id", "received_at"]

    var header: [UInt8] { CSV.text([Self.columns + (properties.isEmpty ? ["properties"] : properties)]) }

    /// - Parameter line: One of an export.
    func row(_ line: ArraySlice<UInt8>) -> [UInt8] {
        func cell(_ name: String, in object: ArraySlice<UInt8>) -> String {
            guard let value = PropertyLookup.value(of: name, in: object) else { return "" }
            let json = String(decoding: value, as: UTF8.self)
            guard value.first == UInt8(ascii: "\""), case .string(let text) = try? PropertyValue(json: json) else { return json }
            return text
        }
        let own = PropertyLookup.value(of: "properties", in: line) ?? []
        let time = Int64(cell("time", in: line)).map { Timestamp(clampingUnixMilliseconds: $0).description }
        return CSV.text([
            [cell("event_id", in: line), cell("event", in: line), time ?? "", cell("distinct_id", in: line), cell("received_at", in: line)]
                + (properties.isEmpty ? [cell("properties", in: line)] : properties.map { cell($0, in: own) })
        ])
    }

    /// The id in a row that this has written; nil in anything else.
    func id(_ row: ArraySlice<UInt8>) -> EventID? {
        EventID(uuidString: String(decoding: row.prefix { $0 != UInt8(ascii: ",") }, as: UTF8.self))
    }

    /// Whether a row can begin so, as far as it goes.
    func beginsRow(_ bytes: ArraySlice<UInt8>) -> Bool {
        bytes.prefix(36).allSatisfy { $0 == UInt8(ascii: "-") || Character(UnicodeScalar($0)).isHexDigit }
    }
}
