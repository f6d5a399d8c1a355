import Foundation
import HapaxModel

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Tells a backup that was put in the place of the store from the log of the store before, which SQLite would write over it: each backup has a
/// number of its own in its header, and a file beside the store names the one that is in use.
enum SQLiteNumber {
    /// Where the header holds it, big-endian (https://www.sqlite.org/fileformat.html#user_version_number).
    private static let offset: UInt64 = 60

    private static func note(of path: String) -> String { path + ".number" }

    /// A number for a backup; 0 is that of all stores that never were one.
    static func make() -> Int32 { .random(in: 1 ... .max) }

    /// Notes the number of the file, unless another one's log lies beside it.
    ///
    /// - Throws: ``StoreError/unusable(_:)``.
    static func check(_ path: String) throws(StoreError) {
        let (number, noted) = (try number(of: path), try noted(at: path))
        guard number != noted else { return }
        if let problem = try problem(path) { throw .unusable(problem) }
        do { try Data("\(number)\n".utf8).write(to: URL(fileURLWithPath: note(of: path)), options: .atomic) } catch {
            throw .unusable("\(note(of: path)) cannot be written")
        }
    }

    /// What is wrong with a file and the log beside it, and what to do; nil if nothing is.
    static func problem(_ path: String) throws(StoreError) -> String? {
        guard try number(of: path) != noted(at: path), try size(of: path + "-wal") > 0 else { return nil }
        return """
            \(path) is another file than the one that \(path)-wal belongs to, as when a backup was copied over it: the log would undo the backup. \
            To go on with the backup remove \(path)-wal and \(path)-shm; to go on with the store from before put its own file back
            """
    }

    private static func number(of path: String) throws(StoreError) -> Int32 {
        // A new file is empty.
        guard try size(of: path) > 0 else { return 0 }
        do {
            // Without SQLite, which would read the log as well.
            let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: path))
            defer { try? file.close() }
            try file.seek(toOffset: offset)
            let bytes = try file.read(upToCount: 4) ?? Data()
            return bytes.reduce(0) { $0 << 8 | Int32($1) }
        } catch {
            throw .unusable("\(path) cannot be read")
        }
    }

    private static func noted(at path: String) throws(StoreError) -> Int32 {
        guard try size(of: note(of: path)) > 0 else { return 0 }
        let text = try? String(contentsOfFile: note(of: path), encoding: .utf8)
        guard let number = text.flatMap({ Int32($0.trimmingCharacters(in: .whitespacesAndNewlines)) }) else {
            throw .unusable("\(note(of: path)) cannot be read: it holds the number of the backup that is in use")
        }
        return number
    }

    /// 0 for a file that is not there.
    private static func size(of path: String) throws(StoreError) -> Int64 {
        do {
            return (try FileManager.default.attributesOfItem(atPath: path)[.size] as? NSNumber)?.int64Value ?? 0
        } catch CocoaError.fileReadNoSuchFile {
            return 0
        } catch {
            throw .unusable("\(path) cannot be looked at: \(error.localizedDescription)")
        }
    }
}
