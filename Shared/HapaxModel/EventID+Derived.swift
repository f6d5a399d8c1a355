extension EventID {
    /// The twelve bits after the version in a dated derived id; an undated one never has them.
    static let datedMark: UInt64 = 0xDA7

    /// An id computed from a business key (UUIDv8, RFC 9562 §5.8), so that an application's own retry is the same event.
    ///
    /// The same name and key give the same id on every machine and in every version of this library: it is the first 128 bits of SHA-256
    /// over `"hapax-derived-1"`, the name and the key, each preceded by its length as eight bytes, with version and variant bits set. If the
    /// twelve bits after the version are 0xDA7, the last of them is cleared.
    ///
    /// The server does not compare the content of events with derived ids: the first one stays and the second is answered `duplicate`. An event
    /// with an undated id is kept for ever: if its day is known, use ``derived(name:key:day:)``.
    ///
    /// - Parameters:
    ///   - name: What kind of thing happened, such as `order_paid`.
    ///   - key: What it happened to, such as the order's number. The key itself is not sent.
    public static func derived(name: String, key: String) -> EventID {
        let (high, low) = hash(name, key)
        let isMarked = high & 0xFFF == datedMark
        return EventID(versionedHigh: (isMarked ? high ^ 1 : high) & ~0xF000 | 0x8000, low: low & (.max >> 2) | (0b10 << 62))
    }

    /// The same with the day on which it happened. The server stores the event in that day's month: it finds the event faster, and can drop
    /// it with the month.
    ///
    /// The day is part of the identity: it must come from the fact itself, such as the order's date, never from the clock, or a retry after
    /// midnight would be another event. The first 48 bits hold the milliseconds of the day's beginning (UTC), 0xDA7 follows the version, and
    /// the 62 bits after the variant are those of ``derived(name:key:)``. Days before 2024 or after 2099 count as undated.
    public static func derived(name: String, key: String, day: CalendarDay) -> EventID {
        let milliseconds = UInt64(day.daysSince1970) * UInt64(millisecondsPerDay)
        return EventID(versionedHigh: milliseconds << 16 | 0x8000 | datedMark, low: hash(name, key).low & (.max >> 2) | (0b10 << 62))
    }

    private static func hash(_ name: String, _ key: String) -> (high: UInt64, low: UInt64) {
        var bytes: [UInt8] = []
        for part in ["hapax-derived-1", name, key] {
            withUnsafeBytes(of: UInt64(part.utf8.count).bigEndian) { bytes += $0 }
            bytes += part.utf8
        }
        let words = bytes.withUnsafeBytes { SHA256Digest(of: $0) }.words
        return (words[0], words[1])
    }
}
