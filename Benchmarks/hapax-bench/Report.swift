import Foundation

extension [Double] {
    /// The middle value; 0 if there is none.
    var median: Double {
        isEmpty ? 0 : sorted()[count / 2]
    }
}

extension String.StringInterpolation {
    mutating func appendInterpolation(_ value: Double, places: Int) {
        appendLiteral(String(format: "%.\(places)f", value))
    }
}

/// Progress, apart from the table.
func note(_ text: String) {
    FileHandle.standardError.write(Data("\(text)\n".utf8))
}
