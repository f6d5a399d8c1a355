import Foundation
import GRDB
import HapaxModel

/// An index from user to rows, for all but the latest rows. A B-tree would slow down every commit, so the index is built afterwards, one
/// segment of rows at a time, in one sequential write.
///
/// A segment's rows are sorted by the hash of their user and split into parts by the hash's first bits. A part is a run of six bytes a row,
/// big-endian: the hash, and the row's place in the segment. Hashes of different users may be equal, so rows found here are only candidates.
enum SQLiteUserRuns {
    static let segmentRows: Int64 = 65_536
    private static let partBits: UInt32 = 6
    private static let entryBytes = 6

    /// Runs store the hash, so its computation must never change.
    private static func hash(_ projectID: Int32, _ distinctID: ArraySlice<UInt8>) -> UInt32 {
        let user = distinctID.withUnsafeBytes { XXH64.hash($0, seed: 3) }
        return UInt32(truncatingIfNeeded: XXH64.hash(user, UInt64(UInt32(bitPattern: projectID)), seed: 0) >> 32)
    }

    private static func part(_ hash: UInt32) -> Int64 { Int64(hash >> (32 - partBits)) }

    /// The first row that is not indexed yet.
    static func end(in db: Database) throws -> Int64 {
        try (Int64.fetchOne(db.cachedStatement(sql: "SELECT max(segment) FROM user_runs WHERE part = 0")).map { $0 + 1 } ?? 0) * segmentRows
    }

    // MARK: - Making

    /// The runs of the next segment, one for each part; nil until all of its rows are stored.
    static func next(in db: Database) throws -> (segment: Int64, runs: [Data])? {
        let start = try end(in: db)
        guard let last = try Int64.fetchOne(db.cachedStatement(sql: "SELECT max(row) FROM events")), last >= start + segmentRows else {
            return nil
        }
        var entries: [UInt64] = []
        entries.reserveCapacity(Int(segmentRows))
        let rows = try Row.fetchCursor(
            db, sql: "SELECT row, project_id, CAST(distinct_id AS BLOB) FROM events WHERE row >= ? AND row < ?",
            arguments: [start, start + segmentRows])
        while let row = try rows.next() {
            let hash = hash(row[1], [UInt8](row[2] as Data? ?? Data())[...])
            entries.append(UInt64(hash) << 16 | UInt64(truncatingIfNeeded: (row[0] as Int64) - start))
        }
        entries.sort()
        var runs = [Data](repeating: Data(), count: 1 << Int(partBits))
        for entry in entries {
            let bytes = (0..<entryBytes).map { UInt8(truncatingIfNeeded: entry >> UInt64(8 * (entryBytes - 1 - $0))) }
            runs[Int(part(UInt32(truncatingIfNeeded: entry >> 16)))].append(contentsOf: bytes)
        }
        return (start / segmentRows, runs)
    }

    /// Must run in one transaction: ``end(in:)`` takes a segment's first part as proof of all of them.
    static func keep(_ segment: Int64, _ runs: [Data], in db: Database) throws {
        let insert = try db.cachedStatement(sql: "INSERT INTO user_runs (part, segment, run) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")
        for (part, run) in runs.enumerated() { try insert.execute(arguments: [part, segment, run]) }
    }

    // MARK: - Reading

    /// Rows of an indexed span that may be a user's, the latest first.
    ///
    /// - Returns: At most `limit` rows, and the row down to which none is missing.
    static func rows(
        of distinctID: String, projectID: Int32, in rows: Range<Int64>, limit: Int, _ db: Database
    ) throws -> (rows: [Int64], from: Int64) {
        let hash = hash(projectID, Array(distinctID.utf8)[...])
        let runs = try Row.fetchCursor(
            db, sql: "SELECT segment, run FROM user_runs WHERE part = ? AND segment >= ? AND segment <= ? ORDER BY segment DESC",
            arguments: [part(hash), rows.lowerBound / segmentRows, (rows.upperBound - 1) / segmentRows])
        var found: [Int64] = []
        while let row = try runs.next() {
            let first = (row[0] as Int64) * segmentRows
            let places = places(of: hash, in: [UInt8](row[1] as Data? ?? Data()))
            found += places.map { first + Int64($0) }.filter(rows.contains)
            if found.count >= limit { return (Array(found.prefix(limit)), found[limit - 1]) }
        }
        return (found, rows.lowerBound)
    }

    /// The latest first.
    private static func places(of hash: UInt32, in run: [UInt8]) -> [UInt16] {
        func entry(_ index: Int) -> UInt64 { run[(index * entryBytes)..<((index + 1) * entryBytes)].reduce(0) { $0 << 8 | UInt64($1) } }
        var (low, high) = (0, run.count / entryBytes)
        while low < high {
            let middle = (low + high) / 2
            if entry(middle) >> 16 < UInt64(hash) { low = middle + 1 } else { high = middle }
        }
        var places: [UInt16] = []
        while low < run.count / entryBytes, entry(low) >> 16 == UInt64(hash) {
            places.append(UInt16(truncatingIfNeeded: entry(low)))
            low += 1
        }
        return places.reversed()
    }
}
