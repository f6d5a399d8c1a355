import HapaxModel

/// Splits a look-up by the months of its ids, so that each statement searches one partition.
struct ProbeParts {
    struct Part: Equatable {
        var keys: [EventKey]
        /// From the least to the greatest.
        var buckets: ClosedRange<Int32>
    }

    /// The most months with a statement each; beyond that one statement covers all, and PostgreSQL searches every partition between.
    static let maximumMonths = 16

    private(set) var parts: [Part] = []

    init(_ keys: [EventKey]) {
        var months: [Int: Part] = [:]
        // Ids of one day are mostly neighbours, so the last day's month is remembered.
        var last: (bucket: Int32, month: Int) = (.min, 0)
        for key in keys {
            let bucket = key.id.bucket
            if bucket != last.bucket { last = (bucket, Self.month(bucket)) }
            months[last.month, default: Part(keys: [], buckets: bucket...bucket)].add(key, bucket)
        }
        parts = months.sorted { $0.key < $1.key }.map(\.value)
        let dated = parts.filter { $0.buckets.lowerBound >= 0 }
        guard dated.count > Self.maximumMonths, let first = dated.first, let end = dated.last else { return }
        let all = Part(keys: dated.flatMap(\.keys), buckets: first.buckets.lowerBound...end.buckets.upperBound)
        parts = parts.filter { $0.buckets.lowerBound < 0 } + [all]
    }

    /// Months since year 0; −1 for ids without a day.
    private static func month(_ bucket: Int32) -> Int {
        guard let parts = CalendarDay(daysSince1970: bucket)?.components else { return -1 }
        return parts.year * 12 + parts.month
    }
}

extension ProbeParts.Part {
    fileprivate mutating func add(_ key: EventKey, _ bucket: Int32) {
        keys.append(key)
        buckets = min(buckets.lowerBound, bucket)...max(buckets.upperBound, bucket)
    }
}
