import GRDB

/// Finds the rows of a table that can be read, whichever pages between them cannot.
///
/// It reads from both ends to the damage, halves what is left, and does the same with each half. That no error was met proves nothing: a
/// damaged page can look like the end of the table, or stand where another's rows should be.
struct RowSearch {
    private let db: Database
    private let table: String
    private let limits: Limits
    /// So many numbers can be those of rows.
    private let capacity: Int
    /// The disk failed: another time there may be more to be read.
    private(set) var trouble: DatabaseError?

    /// When a search gives up.
    struct Limits {
        /// Stretches of row numbers that are tried in a row without finding anything, before the rest of a large part is given up. A damaged
        /// page costs about two for each row it held.
        var vainStretches = 4_096
        /// Before all the rest is given up, as where the way to every row is damaged.
        var vainStretchesOfAll = 16_384
        /// Numbers from the first that waits to the last that was given, all of which are tried if need be; more where more rows waited.
        var expectedPart: Int64 = 1 << 14
        /// Numbers in a part that is searched to its end, if the file can hold so many rows.
        var smallPart = 1 << 16
        /// Before the rest of a part is left for another time because the disk fails.
        var vainReads = 64
    }

    /// Numbers that are searched together.
    struct Part {
        var numbers: ClosedRange<Int64>
        /// Whether the books say that the rows are here, and the numbers are not many more: then each is tried that no row was read of.
        var isExpected = false
    }

    private enum Order: String {
        case ascending = "ASC"
        case descending = "DESC"
    }

    init(_ db: Database, _ table: String, limits: Limits, capacity: Int) {
        (self.db, self.table, self.limits, self.capacity) = (db, table, limits, capacity)
    }

    /// Reads all that can be read from either end.
    ///
    /// - Returns: The numbers between; nil if there is nothing between.
    mutating func firstLook(_ body: (Row) throws -> Bool) throws -> ClosedRange<Int64>? {
        try readFromBothEnds(0...(.max - 1), mayHaveGaps: true, body)
    }

    mutating func search(_ parts: [Part], _ body: (Row) throws -> Bool) throws {
        var allVain = 0
        for part in parts {
            var stretches = [part.numbers]
            var (tried, vain) = (0, 0)
            while tried < stretches.count, mayGoOn(in: part, vain: vain, ofAll: allVain) {
                let stretch = stretches[tried]
                tried += 1
                (vain, allVain) = (vain + 1, allVain + 1)
                guard let rest = try readFromBothEnds(stretch, mayHaveGaps: !part.isExpected, body) else { continue }
                if rest != stretch { (vain, allVain) = (0, 0) }
                // One row has had its turn.
                guard rest.lowerBound < rest.upperBound || rest != stretch else { continue }
                let middle = rest.lowerBound + (rest.upperBound - rest.lowerBound) / 2
                stretches.append(rest.lowerBound...middle)
                if middle < rest.upperBound { stretches.append(middle + 1...rest.upperBound) }
            }
            if part.isExpected { allVain = 0 }
        }
    }

    private func mayGoOn(in part: Part, vain: Int, ofAll allVain: Int) -> Bool {
        // Where the disk fails all of it is tried again later.
        if trouble != nil { return vain < limits.vainReads }
        if part.isExpected { return true }
        return allVain < limits.vainStretchesOfAll
            && (vain < limits.vainStretches || part.numbers.count <= min(capacity, limits.smallPart))
    }

    /// Reads from the lower end, then from the upper end, each to the damage.
    ///
    /// - Parameter mayHaveGaps: Whether to believe that numbers have no row, where both sides say so.
    /// - Returns: What lies between; nil if nothing does.
    private mutating func readFromBothEnds(
        _ stretch: ClosedRange<Int64>, mayHaveGaps: Bool, _ body: (Row) throws -> Bool
    ) throws -> ClosedRange<Int64>? {
        let low = try read(stretch, .ascending, mayHaveGaps: mayHaveGaps, body)
        guard low.last != stretch.upperBound else { return nil }
        let rest = (low.last.map { $0 + 1 } ?? stretch.lowerBound)...stretch.upperBound
        let high = try read(rest, .descending, mayHaveGaps: mayHaveGaps, body)
        if mayHaveGaps, !low.isCutOff, !high.isCutOff, high.last == nil, isEmpty(rest) { return nil }
        let upperBound = high.last.map { $0 - 1 } ?? rest.upperBound
        return rest.lowerBound <= upperBound ? rest.lowerBound...upperBound : nil
    }

    /// - Returns: The last row read of those that are what was stored, nil without one; and whether damage was met behind it.
    private mutating func read(
        _ stretch: ClosedRange<Int64>, _ order: Order, mayHaveGaps: Bool, _ body: (Row) throws -> Bool
    ) throws -> (last: Int64?, isCutOff: Bool) {
        var last: Int64?
        var met: Int64?
        do {
            // Cached: most of the time would go into preparing it.
            let sql = "SELECT * FROM \(table) WHERE row BETWEEN ? AND ? ORDER BY row \(order.rawValue)"
            let rows = try Row.fetchCursor(db.cachedStatement(sql: sql), arguments: [stretch.lowerBound, stretch.upperBound])
            while let row = try rows.next() {
                // A damaged page gives numbers that were not asked for: what is left to be searched must become smaller.
                guard let number: Int64 = row[0], stretch.contains(number) else { throw DatabaseError(resultCode: .SQLITE_CORRUPT) }
                let isWhole: Bool
                do { isWhole = try body(row) } catch { throw SalvageFailure(cause: error) }
                guard try isNext(number, met, stretch, order) || mayHaveGaps && follows(number, met, stretch, order) else {
                    throw DatabaseError(resultCode: .SQLITE_CORRUPT)
                }
                met = number
                if isWhole { last = number }
            }
            return (last, false)
        } catch let failure as SalvageFailure {
            throw failure
        } catch {
            if error.isTrouble {
                guard let failure = error as? DatabaseError, error.isDiskFailure else { throw SalvageFailure(cause: error) }
                trouble = failure
            }
            return (last, true)
        }
    }

    private func isNext(_ number: Int64, _ last: Int64?, _ stretch: ClosedRange<Int64>, _ order: Order) -> Bool {
        switch order {
        case .ascending: number == last.map { $0 + 1 } ?? stretch.lowerBound
        case .descending: number == last.map { $0 - 1 } ?? stretch.upperBound
        }
    }

    /// Whether no row was left out before one that was read: a page can stand where another should, with rows that are whole.
    ///
    /// - Parameter last: The number of the row read before it; nil for the first of the stretch.
    private func follows(_ number: Int64, _ last: Int64?, _ stretch: ClosedRange<Int64>, _ order: Order) throws -> Bool {
        switch order {
        case .ascending:
            let found = try previous(before: number)
            return last == nil ? found.map { $0 < stretch.lowerBound } ?? true : found == last
        case .descending:
            let found = try next(behind: number)
            return last == nil ? found.map { $0 > stretch.upperBound } ?? true : found == last
        }
    }

    /// Whether there is no row, as far as SQLite can be believed: it takes noise for a row of any number, which can seem to be the first one
    /// behind all that was asked for.
    ///
    /// Then the rows at both sides of it, each looked for from the other, are not neighbours.
    private func isEmpty(_ stretch: ClosedRange<Int64>) -> Bool {
        do {
            let behind = try next(behind: stretch.upperBound)
            let before = try previous(before: stretch.lowerBound)
            return try next(behind: before ?? -1) == behind && previous(before: behind ?? .max) == before
        } catch {
            return false
        }
    }

    private func next(behind number: Int64) throws -> Int64? {
        let sql = "SELECT row FROM \(table) WHERE row > ? ORDER BY row LIMIT 1"
        return try Int64.fetchOne(db.cachedStatement(sql: sql), arguments: [number])
    }

    private func previous(before number: Int64) throws -> Int64? {
        let sql = "SELECT row FROM \(table) WHERE row < ? ORDER BY row DESC LIMIT 1"
        return try Int64.fetchOne(db.cachedStatement(sql: sql), arguments: [number])
    }
}
