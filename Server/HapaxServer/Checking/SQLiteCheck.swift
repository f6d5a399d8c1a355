import Foundation
import GRDB
import HapaxModel
import HapaxSQLite

/// What can be said of the embedded store without changing it, whether a server runs or not.
struct SQLiteCheck {
    let path: String
    /// Unix milliseconds.
    let now: Int64
    let hasFixedKeys: Bool
    let isDeep: Bool

    func findings() async -> [Finding] {
        let path = DatabaseFile.resolved(path)
        let attributes: [FileAttributeKey: Any]?
        do { attributes = try FileManager.default.attributesOfItem(atPath: path) } catch CocoaError.fileReadNoSuchFile {
            attributes = nil
        } catch {
            return [.fail("store", "\(path) cannot be looked at", help: "run this as who may read it")]
        }
        if let type = attributes?[.type] as? FileAttributeType, type != .typeRegular {
            return [.fail("store", "\(path) is no file")]
        }
        // SQLite makes files next to it, which the server could not write to.
        if let owner = (attributes?[.ownerAccountID] as? NSNumber)?.uint32Value, geteuid() != 0, geteuid() != owner {
            return [.fail("store", "\(path) belongs to another user", help: "run this as that one")]
        }
        guard attributes != nil else {
            return [.warn("schema", "there is no file \(path) yet; the first start makes it")]
        }
        if FileSystem.isShared(path) {
            return [.fail("store", "\(path) is on a network file system, and SQLite's log works on one machine only")]
        }
        do {
            if let problem = try SQLiteNumber.problem(path) { return [.fail("store", problem)] }
            let reader = try SQLiteReader(path: path)
            let applied = try await reader.read { try SQLiteSchema.migrator.appliedIdentifiers($0) }
            let schema = try await SchemaCheck.finding(applied: Array(applied), known: SQLiteSchema.changes) { (table) throws(StoreError) in
                try await reader.read { db in
                    guard try db.tableExists(table) else { return nil }
                    return try Int64.fetchOne(db, sql: table == "events" ? "SELECT max(row) FROM events" : "SELECT count(*) FROM \(table)")
                        ?? 0
                }
            }
            var findings = [schema]
            if schema.verdict == .ok {
                let database = SQLiteSQLStore(reader: reader)
                findings += try await StoreCheck(database: database, reader: reader, now: now, hasFixedKeys: hasFixedKeys, isDeep: isDeep)
                    .findings()
            }
            await reader.close()
            return findings
        } catch {
            return [.fail("store", "\(path): \(SQLiteEventStore.translated(error))")]
        }
    }
}
