import HapaxModel

/// Splits a look-up by the months of its ids, so that each statement searches one partition.
struct ProbeParts {
    struct Part: Equatable {
        var keys: [EventKey]
        /// From the least to the greatest.
        var buckets: ClosedRange<Int32>

        /// The month of all of them; nil if they have none, or more than one.
        var month: CalendarMonth? {
            CalendarMonth(bucket: buckets.lowerBound).flatMap { $0.buckets.contains(buckets.upperBound) ? $0 : nil }
        }
    }

    /// The most months with a statement each; beyond that one statement covers all, and PostgreSQL searches every partition between.
    static let maximumMonths = 16

    private(set) var parts: [Part] = []

    init(_ keys: [EventKey]) {
        var months: [CalendarMonth?: Part] = [:]
        // Ids of one day are mostly neighbours, so the last day's month is remembered.
        var last: (bucket: Int32, month: CalendarMonth?) = (.min, nil)
        for key in keys {
            let bucket = key.id.bucket
            if bucket != last.bucket { last = (bucket, CalendarMonth(bucket: bucket)) }
            months[last.month, default: Part(keys: [], buckets: bucket...bucket)].add(key, bucket)
        }
        parts = months.values.sorted { $0.buckets.lowerBound < $1.buckets.lowerBound }
        let dated = parts.filter { $0.buckets.lowerBound >= 0 }
        guard dated.count > Self.maximumMonths, let first = dated.first, let end = dated.last else { return }
        let all = Part(keys: dated.flatMap(\.keys), buckets: first.buckets.lowerBound...end.buckets.upperBound)
        parts = parts.filter { $0.buckets.lowerBound < 0 } + [all]
    }
}

extension ProbeParts.Part {
    fileprivate mutating func add(_ key: EventKey, _ bucket: Int32) {
        keys.append(key)
        buckets = min(buckets.lowerBound, bucket)...max(buckets.upperBound, bucket)
    }
}
