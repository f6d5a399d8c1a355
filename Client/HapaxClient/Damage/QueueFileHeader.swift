import Foundation
import GRDB

/// The first bytes of a SQLite file (https://www.sqlite.org/fileformat2.html#the_database_header), looked at before SQLite may change any.
///
/// SQLite takes a file of a few bytes for an empty database, and one whose version bytes are damaged for one it may only read.
struct QueueFileHeader {
    private let bytes: Data

    private static let length = 100
    private static let magic = Data("SQLite format 3\0".utf8)

    /// - Returns: nil if there is no file, or it cannot be read.
    init?(path: String) {
        guard let file = FileHandle(forReadingAtPath: path) else { return nil }
        defer { try? file.close() }
        do {
            bytes = try file.read(upToCount: Self.length) ?? Data()
        } catch {
            return nil
        }
    }

    var isEmpty: Bool { bytes.isEmpty }

    /// - Throws: SQLITE_NOTADB if it is none.
    func check() throws {
        let isDatabase =
            bytes.count == Self.length && bytes.prefix(16) == Self.magic && (1...2).contains(bytes[18]) && (1...2).contains(bytes[19])
        guard isDatabase else { throw DatabaseError(resultCode: .SQLITE_NOTADB) }
    }
}
