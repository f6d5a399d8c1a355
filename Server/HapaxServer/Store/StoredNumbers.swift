import HapaxModel

/// Which numbers the rows of `events` have, apart from those that the books say are stored.
enum StoredNumbers {
    /// Ranges of removed rows that are kept of one install; beyond them neighbours are joined, and rows between them that somebody deletes by hand
    /// are not missed. A service's install can have an erased user's event at every second number.
    static let maximumRanges = 1_000

    /// Notes that rows are about to go: in the books with their numbers, so that they are not taken for lost, and in ``Removals``.
    ///
    /// - Parameter rows: Few: they are added up in memory.
    static func remove(_ rows: StoreSQL, _ dialect: Dialect) -> [StoreSQL] {
        let numbered: StoreSQL = "events WHERE \(rows) AND install_id IS NOT NULL AND sequence >= 0 AND sequence <= \(SequenceSet.maximum)"
        return [
            // In the order in which groups lock them.
            """
            SELECT 1 FROM installs WHERE (project_id, install_id) IN (SELECT project_id, install_id FROM \(numbered))
            ORDER BY install_id, project_id\(dialect.lock)
            """,
            """
            UPDATE installs SET removed = \(dialect.union("installs.removed", "r.numbers")) FROM (
              SELECT project_id, install_id, \(dialect.ranges("sequence", "sequence")) AS numbers FROM \(numbered) GROUP BY project_id, install_id
            ) AS r WHERE installs.project_id = r.project_id AND installs.install_id = r.install_id AND NOT installs.is_unknown
            """,
            Removals.note("events WHERE \(rows) AND event <> ''"),
        ]
    }

    /// The ranges of numbers that a table's rows have, few of them for many rows: neighbours are counted together by the database, on its disk if need be.
    static func islands(_ table: StoreSQL) -> StoreSQL {
        """
        SELECT project_id, install_id, min(sequence) AS first, max(sequence) AS last FROM (
          SELECT project_id, install_id, sequence, sequence - dense_rank() OVER (PARTITION BY project_id, install_id ORDER BY sequence) AS island
          FROM \(table) WHERE install_id IS NOT NULL AND sequence >= 0 AND sequence <= \(SequenceSet.maximum)
        ) AS n GROUP BY project_id, install_id, island
        """
    }

    /// The installs with numbers that should have a row and have none: the project's number, the install, the numbers.
    static func lost(_ dialect: Dialect) -> StoreSQL {
        """
        SELECT project_id, \(dialect.uuidText("install_id")), \(dialect.text("lost")) FROM (
          SELECT i.project_id, i.install_id, \(dialect.minus(dialect.minus("i.stored", "i.removed"), "coalesce(r.numbers, '{}')")) AS lost
          FROM installs AS i LEFT JOIN (
            SELECT project_id, install_id, \(dialect.ranges("first", "last")) AS numbers FROM (\(islands("kept_events"))) AS s
            GROUP BY project_id, install_id
          ) AS r ON r.project_id = i.project_id AND r.install_id = i.install_id
          WHERE NOT EXISTS (SELECT 1 FROM erasures AS x WHERE x.project_id = i.project_id AND x.distinct_id = '')
        ) AS l WHERE lost <> '{}' ORDER BY 1, 2 LIMIT 100
        """
    }
}
