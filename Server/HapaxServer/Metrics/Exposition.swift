/// Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats/).
struct Exposition {
    enum Kind: String { case counter, gauge, histogram }
    typealias Labels = [(name: String, value: String)]

    private(set) var text = ""

    mutating func add(_ kind: Kind, _ name: String, _ help: String, _ samples: [(labels: Labels, value: Double)]) {
        head(kind, name, help)
        for sample in samples { line(name, sample.labels, sample.value) }
    }

    mutating func add(_ kind: Kind, _ name: String, _ help: String, _ value: Double?) {
        if let value { add(kind, name, help, [([], value)]) }
    }

    mutating func add(_ kind: Kind, _ name: String, _ help: String, _ value: Int) { add(kind, name, help, Double(value)) }

    mutating func add(_ name: String, _ help: String, _ histograms: [(labels: Labels, histogram: Histogram)]) {
        head(.histogram, name, help)
        for (labels, histogram) in histograms {
            var count = 0
            for (bound, more) in zip(histogram.bounds.map { Self.text($0) } + ["+Inf"], histogram.counts) {
                count += more
                line("\(name)_bucket", labels + [("le", bound)], Double(count))
            }
            line("\(name)_sum", labels, histogram.sum)
            line("\(name)_count", labels, Double(count))
        }
    }

    private mutating func head(_ kind: Kind, _ name: String, _ help: String) {
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
    }

    private mutating func line(_ name: String, _ labels: Labels, _ value: Double) {
        let list = labels.map { label in
            let value = label.value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
            return "\(label.name)=\"\(value)\""
        }
        text += "\(name)\(list.isEmpty ? "" : "{\(list.joined(separator: ","))}") \(Self.text(value))\n"
    }

    /// Whole numbers without a fraction.
    private static func text(_ value: Double) -> String { Int64(exactly: value).map { "\($0)" } ?? "\(value)" }
}
