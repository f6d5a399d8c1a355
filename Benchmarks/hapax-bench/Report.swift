import Foundation

extension [Double] {
    /// The middle value; 0 if there is none.
    var median: Double {
        isEmpty ? 0 : sorted()[count / 2]
    }
}

extension Double {
    func rounded(toPlaces places: Int) -> String { String(format: "%.\(places)f", self) }
}

extension String.StringInterpolation {
    mutating func appendInterpolation(_ value: Double, places: Int) {
        appendLiteral(value.rounded(toPlaces: places))
    }
}

/// Progress, apart from the table.
func note(_ text: String) {
    FileHandle.standardError.write(Data("\(text)\n".utf8))
}
