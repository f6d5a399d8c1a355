import HapaxModel

/// Which rows of a project a question counts: those whose time lies in its days, that are not ahead, and that were received before the settled
/// instant and, for closed figures, before their own day closed (docs/reading.md, What counts).
struct CountedRows: Sendable {
    var projectID: Int32
    var basis: DailyReport.Basis
    /// The settled instant in Unix milliseconds: what is received later is in no answer.
    var settled: Int64

    /// A span of time that counts as one, in Unix milliseconds; the end is not part of it. All of it lies in one day.
    struct Piece: Hashable, Sendable {
        var starts: Int64
        var ends: Int64
        /// When its day closes.
        var closes: Int64
        /// nil: nothing of it counts.
        var number: Int?
    }

    /// Whole days, each with the number of its piece.
    static func pieces(_ days: [ReportDay], _ number: (Int) -> Int) -> [Piece] {
        days.enumerated().map { index, day in
            Piece(starts: day.starts * 1_000, ends: day.ends * 1_000, closes: day.closes * 1_000, number: number(index))
        }
    }

    func state(of day: ReportDay) -> DailyReport.State { settled >= day.closes * 1_000 ? .closed : .open }

    /// A question's rows with the number of their piece, as a table with the columns `point`, `distinct_id` and those that are named; nil if
    /// nothing was received that could count.
    ///
    /// - Parameters:
    ///   - pieces: One after the other, without gaps.
    ///   - condition: Begins with AND, if there is one.
    func table(
        _ pieces: [Piece], _ condition: StoreSQL, columns: StoreSQL = "", _ database: any SQLStore
    ) async throws(StoreError) -> StoreSQL? {
        // As of days to come, of whose counterparts nothing counts yet.
        guard let first = pieces.first, let last = pieces.last, pieces.contains(where: { $0.number != nil }) else { return nil }
        let end = basis == .closed ? min(settled, last.closes) : settled
        let received = try await database.received(
            from: first.starts / 1_000 - DailyQuery.longestLead, to: (end + 999) / 1_000, parts: .question)
        guard let received = received.first else { return nil }
        let (dialect, pieces) = (database.dialect, merged(pieces))
        let table: StoreSQL = """
            (SELECT \(point(pieces[...])) AS point, distinct_id\(columns)
            FROM \(Self.rows(of: projectID, received, from: first.starts / 1_000, to: last.ends / 1_000, dialect))
              AND received_at < \(milliseconds: settled)\(condition)
            ) AS numbered
            """
        guard pieces.contains(where: { $0.number == nil || canBeLate($0) }) else { return table }
        return "(SELECT * FROM \(table) WHERE point IS NOT NULL) AS counted"
    }

    /// The rows, of all that were received in a span, whose time lies in another one and that are not ahead; the daily report counts these, too.
    ///
    /// - Parameters:
    ///   - from: In Unix seconds, as `to`, which is not part of it.
    static func rows(of projectID: Int32, _ received: StoreSQL, from: Int64, to: Int64, _ dialect: Dialect) -> StoreSQL {
        // Most events are received after their own time, and one comparison shows that they are not ahead.
        """
        kept_events WHERE project_id = \(projectID) AND \(received) AND time >= \(instant: from) AND time < \(instant: to)
          AND (time < received_at OR NOT (\(dialect.isAhead)))
        """
    }

    /// How many rows of a span are ahead, and count nowhere.
    static func ahead(of projectID: Int32, from: Int64, to: Int64, _ dialect: Dialect) -> StoreSQL {
        """
        SELECT count(*) FROM kept_events WHERE project_id = \(projectID) AND time >= \(instant: from) AND time < \(instant: to)
          AND \(dialect.isAhead)
        """
    }

    /// Neighbours with one number are one piece, unless a row between them could be late.
    private func merged(_ pieces: [Piece]) -> [Piece] {
        pieces.reduce(into: []) { merged, piece in
            if let last = merged.last, last.number == piece.number,
                piece.number == nil || last.closes == piece.closes || !(canBeLate(last) || canBeLate(piece))
            {
                merged[merged.count - 1].ends = piece.ends
            } else {
                merged.append(piece)
            }
        }
    }

    private func canBeLate(_ piece: Piece) -> Bool { basis == .closed && piece.closes < settled }

    /// The number of a row's piece, or NULL, by halving the pieces.
    private func point(_ pieces: ArraySlice<Piece>) -> StoreSQL {
        guard pieces.count > 1 else {
            guard let piece = pieces.first, let number = piece.number else { return "NULL" }
            // A number of our own, which as a parameter would be a text to PostgreSQL.
            let text = StoreSQL(stringLiteral: "\(number)")
            return canBeLate(piece) ? "CASE WHEN received_at < \(milliseconds: piece.closes) THEN \(text) END" : text
        }
        let middle = pieces.startIndex + pieces.count / 2
        return """
            CASE WHEN time < \(milliseconds: pieces[middle].starts) THEN \(point(pieces[..<middle])) ELSE \(point(pieces[middle...])) END
            """
    }
}
