/// Counts values by upper bounds, as Prometheus does (https://prometheus.io/docs/concepts/metric_types/#histogram).
struct Histogram: Sendable {
    let bounds: [Double]
    /// One for each bound, and one for what is above them all.
    private(set) var counts: [Int]
    private(set) var sum = 0.0

    init(_ bounds: [Double]) {
        self.bounds = bounds
        counts = [Int](repeating: 0, count: bounds.count + 1)
    }

    mutating func observe(_ value: Double) {
        counts[bounds.firstIndex { value <= $0 } ?? bounds.count] += 1
        sum += value
    }

    /// Seconds.
    static let durations = Histogram([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10])
    static let groups = Histogram([1, 10, 50, 100, 250, 500, 1_000, 2_500, 5_000])
}
