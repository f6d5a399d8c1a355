import Foundation
import GRDB
import HapaxModel
import TestSupport

/// A row of the store with what a history wrote into it.
struct StoredEvent: Hashable, Sendable {
    var id: EventID
    var install: EventID?
    var sequence: Int64?
    var name: String
    var mark: Mark?
    /// Whether the rest is what belongs to the mark.
    var isWhole = false
    /// What `$QueueDamaged` says is lost; nil if nobody knows.
    var lost: Int?
    var lostLetters: Int?

    fileprivate init(id: EventID, install: EventID?, sequence: Int64?, name: String, properties: Data) {
        self.id = id
        self.install = install
        self.sequence = sequence
        self.name = name
        guard let object = try? JSONSerialization.jsonObject(with: properties) as? [String: Any] else { return }
        lost = object["$lost"] as? Int
        lostLetters = object["$lost_dead_letters"] as? Int
        (mark, isWhole) = Self.mark(of: object)
    }

    /// What the properties say of a history's event.
    static func mark(of properties: [String: Any]) -> (mark: Mark?, isWhole: Bool) {
        guard let text = properties["mark"] as? String, let mark = Mark(text) else { return (nil, false) }
        let isWhole = (properties["fill"] as? String).map { Mark.isFill($0, of: text) } == true
        return (mark, isWhole && properties.keys.allSatisfy { $0.hasPrefix("$") || $0 == "mark" || $0 == "fill" })
    }
}

extension PipelineStore {
    /// Every event there is, read apart from the code under test.
    func events() async throws -> [StoredEvent] {
        switch kind {
        case .postgres:
            return try await query(
                """
                SELECT event_id, coalesce(install_id::text, ''), coalesce(sequence::text, ''), event, properties::text FROM events
                """
            ).map { row in
                guard let id = EventID(uuidString: row[0]) else { throw Unreadable() }
                return StoredEvent(
                    id: id, install: EventID(uuidString: row[1]), sequence: Int64(row[2]), name: row[3], properties: Data(row[4].utf8))
            }
        case .sqlite:
            return try await read { db in
                try Row.fetchAll(db, sql: "SELECT event_id, install_id, sequence, event, properties FROM events").map { row in
                    guard let id = EventID(bytes: row["event_id"] as Data) else { throw Unreadable() }
                    let install: Data? = row["install_id"]
                    return StoredEvent(
                        id: id, install: install.flatMap { EventID(bytes: $0) }, sequence: row["sequence"], name: row["event"],
                        properties: Data((row["properties"] as String).utf8))
                }
            }
        }
    }
}
