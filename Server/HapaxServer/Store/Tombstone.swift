/// What is left of an event whose content is gone while its id must not return: its row, with an empty name, which no event can have. All readers
/// read `kept_events`, which has none.
enum Tombstone {
    /// What it is known by when its id comes again: that is a duplicate, whatever it holds.
    static let fingerprint: Int64 = 0

    /// Rows that one transaction changes.
    static let rowsAtOnce = 1_000
    /// Rows that are found at once, so that many events do not fill the memory.
    static let foundAtOnce = 100_000

    /// How often events may be found and none of them changed, as where a trigger of somebody's own keeps them.
    static let attempts = 20
    static let unchangeable = "events that are to be removed are found and cannot be changed"

    /// Turns events into tombstones; each gives a row.
    static func bury(_ rows: StoreSQL) -> StoreSQL {
        """
        UPDATE events SET event = '', distinct_id = '', sent_at = NULL, install_id = NULL, sequence = NULL,
          fingerprint = \(fingerprint), properties = '{}' WHERE \(rows) RETURNING 1
        """
    }
}

extension Dialect {
    /// Conditions for the rows with these keys, each for as many as one transaction should change.
    func parts(_ keys: [String]) -> [StoreSQL] {
        let keys = sorted(keys)
        return stride(from: 0, to: keys.count, by: Tombstone.rowsAtOnce).map {
            rows(keys[$0..<min($0 + Tombstone.rowsAtOnce, keys.count)])
        }
    }
}
