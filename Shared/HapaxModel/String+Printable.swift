extension String {
    /// The same text with each character that would do something instead of showing something written out, as `\u{1B}`.
    package var printable: String {
        unicodeScalars.reduce(into: "") { result, scalar in
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator:
                result += "\\u{" + String(scalar.value, radix: 16, uppercase: true) + "}"
            default: result.unicodeScalars.append(scalar)
            }
        }
    }
}
