import GRDB

/// What PostgreSQL can do with an `int8multirange`, for SQLite, whose sets are texts.
enum SQLiteSequenceSets {
    static func add(to db: Database) {
        db.add(
            function: function("hapax_union") { left, right in
                left.formUnion(right)
                if left.ranges.count > StoredNumbers.maximumRanges { left = left.coarsened(to: StoredNumbers.maximumRanges / 2) }
            })
        db.add(function: function("hapax_minus") { left, right in left = left.subtracting(right) })
        db.add(function: DatabaseFunction("hapax_ranges", argumentCount: 2, pure: true, aggregate: Ranges.self))
    }

    private static func function(_ name: String, _ change: @escaping @Sendable (inout SequenceSet, SequenceSet) -> Void) -> DatabaseFunction
    {
        DatabaseFunction(name, argumentCount: 2, pure: true) { values in
            guard var left = String.fromDatabaseValue(values[0]).flatMap({ SequenceSet($0) }),
                let right = String.fromDatabaseValue(values[1]).flatMap({ SequenceSet($0) })
            else { return nil }
            change(&left, right)
            return left.description
        }
    }

    private struct Ranges: DatabaseAggregate {
        private var set = SequenceSet()

        init() {}

        mutating func step(_ values: [DatabaseValue]) {
            if let first = Int64.fromDatabaseValue(values[0]), let last = Int64.fromDatabaseValue(values[1]), first <= last {
                set.insert(first...last)
            }
        }

        func finalize() -> (any DatabaseValueConvertible)? { set.description }
    }
}
