import HapaxModel

/// What the store has noted of its clock, and what mends it after the clock was wrong (docs/operations.md, The clock).
package struct ClockMarks: Sendable {
    private let database: any SQLStore

    package struct Reset: Sendable {
        /// Unix milliseconds.
        package var now: Int64
        /// Events that seemed to have been received later.
        package var events = 0
        /// Projects with days that have closed ahead of their time, and up to which instant, in Unix milliseconds: those stay closed.
        package var closed: [(project: String, until: Int64)] = []
    }

    package init(database: any SQLStore) { self.database = database }

    /// - Parameter now: The wall clock in Unix milliseconds, for a store without a clock of its own.
    private func present(_ now: Int64) async throws(StoreError) -> Int64 {
        let ms = database.dialect.milliseconds
        guard let present = try await database.ask("SELECT \(ms(database.dialect.now(now)))", as: .own).first?[0].flatMap({ Int64($0) })
        else {
            throw .unavailable("its clock cannot be read")
        }
        return present
    }

    /// Lets days close by the clock as it is, without the hour that a jump waits.
    ///
    /// - Returns: What the clock shows, in Unix milliseconds.
    package func accept(now: Int64) async throws(StoreError) -> Int64 {
        let present = try await present(now)
        _ = try await database.change(["UPDATE clock SET accepted = \(milliseconds: present)"], as: .owner)
        return present
    }

    /// Once the clock is right again: moves back to it whatever was noted ahead of it, but for days that have closed.
    package func reset(now: Int64) async throws(StoreError) -> Reset {
        let dialect = database.dialect
        var reset = Reset(now: try await present(now))
        for row in try await database.ask(
            """
            SELECT p.name, \(dialect.milliseconds("r.folded_to")) FROM report_progress r JOIN projects p USING (project_id)
            WHERE r.folded_to > \(milliseconds: reset.now) ORDER BY p.name
            """, as: .own)
        {
            guard let project = row[0], let until = row[1].flatMap({ Int64($0) }) else { throw .unavailable("its days cannot be read") }
            reset.closed.append((project, until))
        }
        // No event may come before an instant up to which a day has been counted.
        let mark = reset.closed.map(\.until).max() ?? reset.now
        for rows in try await database.received(from: mark / 1_000, to: .max, parts: .small) {
            let later: StoreSQL = "\(rows) AND received_at > \(milliseconds: mark)"
            reset.events += try await database.changeInTurn([
                "UPDATE events SET received_at = \(milliseconds: mark) WHERE \(later) RETURNING 1"
            ]).count
        }
        _ = try await database.change(
            [
                "UPDATE report_late_progress SET late_to = \(milliseconds: mark) WHERE late_to > \(milliseconds: mark)",
                "UPDATE clock SET accepted = NULL",
            ], as: .owner)
        return reset
    }
}
