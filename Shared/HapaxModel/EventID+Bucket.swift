extension EventID {
    /// The first and the last millisecond for which a version 7 id counts as dated: 2024-01-01 up to and including 2099-12-31 (UTC).
    static let datedMilliseconds: ClosedRange<Int64> = 1_704_067_200_000...4_102_444_799_999

    static let millisecondsPerDay: Int64 = 86_400_000

    /// How many buckets share the ids that carry no usable day.
    static let undatedBuckets: Int32 = 16

    /// The day that this id belongs to, in days since 1970-01-01 (UTC); negative for an id that carries no day.
    ///
    /// A pure function of the id: the same id always lands in the same partition of the store, so the unique key holds over all of them.
    /// Version 7 ids and dated derived ids from 2024 to 2099 carry a day; all others get −1 − (last byte mod 16).
    package var bucket: Int32 {
        if let milliseconds = unixMilliseconds ?? derivedDayMilliseconds, Self.datedMilliseconds.contains(milliseconds) {
            return Int32(milliseconds / Self.millisecondsPerDay)
        }
        return -1 - Int32(low & 0xFF) % Self.undatedBuckets
    }

    /// The beginning of the day in a dated derived id, in Unix milliseconds; nil for every other id.
    private var derivedDayMilliseconds: Int64? {
        guard isDerived, high & 0xFFF == Self.datedMark else { return nil }
        let milliseconds = Int64(high >> 16)
        return milliseconds % Self.millisecondsPerDay == 0 ? milliseconds : nil
    }
}
