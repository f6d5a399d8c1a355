import HapaxModel
import TestSupport

/// What a history's clients were told and what is there at its end; decides which promises are broken.
///
/// A value, so that controls can plant a violation and see it found.
struct HistoryAudit: Sendable {
    /// A client, or a command, said that this event is kept.
    struct Report: Sendable {
        var id: EventID
        var mark: Mark
        var step: Int
        var install: EventID?
        var sequence: Int64?
        /// What was kept is a dead letter.
        var isLetter = false
    }

    struct Letter: Sendable {
        var id: EventID?
        var install: EventID?
        var sequence: Int64?
        var reason: String
        var mark: Mark?
    }

    /// A purge that said it is done: what had been tracked before, and was neither stored nor kept as a letter, must not arrive.
    struct Purge: Sendable {
        var step: Int
        var stored: Set<EventID>
        var deadLetters: Set<EventID>
    }

    // MARK: - What clients said

    var reports: [Report] = []
    /// By run and thread, the highest index that anybody has spoken of; one more may have been under way.
    var spokenOf: [String: [Int: Int]] = [:]
    /// In which step each run began.
    var steps: [String: Int] = [:]
    /// Other events that were tracked under an id that was there.
    var rivals: [EventID: Set<Mark>] = [:]
    /// Refused at intake, or tracked after the opt-out was acknowledged.
    var refused: Set<Mark> = []
    var refusedRuns: Set<String> = []
    /// A commit failed; they may be stored all the same.
    var unstored: Set<Mark> = []
    var purges: [Purge] = []

    // MARK: - What may be missing

    /// The last step that deleted what waits, whether it ended well or not, and the last one that damaged a file that tells.
    var lastPurge: Int?
    var lastDamage: Int?
    /// How many waiting events, and how many letters, the purges said they deleted; nil once one ended without saying.
    var purged: Int? = 0
    var purgedLetters = 0
    /// Were in a file from which commits were taken back, which it does not show.
    var untellable: Set<EventID> = []
    var logWasDamaged = false
    var damages = 0
    var isDamaged: Bool { damages > 0 }

    // MARK: - What is there

    var rows: [StoredEvent] = []
    var deadLetters: [Letter] = []
    var filesAside = 0
    var status: HistoryStatus?
    /// What went wrong on the way: a crash, a hang, an exit code that means something else.
    var incidents: [String] = []

    enum Violation: Hashable, Sendable {
        case lost(Mark)
        case lossUntold(missing: Int, told: Int)
        case storedTwice(Mark)
        case storedAndDead(Mark?)
        case deadTwice(EventID)
        case withoutReason
        case unexpected(EventID, Mark?)
        case changed(EventID, Mark?)
        case storedAfterPurge(Mark, step: Int)
        case storedAlthoughRefused(Mark)
        case sequenceFellBack(install: EventID, step: Int)
        case repeatedSequence(install: EventID, Int64)
        case gap(install: EventID, missing: Int)
        case needlesslySetAside(files: Int, damages: Int)
        case damageNotReported(files: Int)
        case notDrained(String)
        case booksDoNotBalance(String)
        case dropsMiscounted(String)
        case incident(String)
    }

    var violations: [Violation] {
        incidents.map { .incident($0) } + lost + twice + strangers + changed + arrivedAfterPurge + storedAlthoughRefused + sequences
            + damage
            + books
    }

    private var notices: [StoredEvent] { rows.filter { $0.name == "$QueueDamaged" } }

    // MARK: - Conservation (I1, I2)

    /// One report of each, the latest.
    private var missing: [Report] {
        let kept = Set(rows.map(\.id)).union(deadLetters.compactMap(\.id))
        var seen: Set<EventID> = []
        return reports.reversed().filter { !kept.contains($0.id) && !untellable.contains($0.id) && seen.insert($0.id).inserted }
    }

    private var lost: [Violation] {
        let missing = missing
        guard let last = [lastPurge, lastDamage].compactMap({ $0 }).max() else { return missing.map { .lost($0.mark) } }
        let late = missing.filter { $0.step > last }
        // Letters of which the damage has left no id can be anybody's.
        let ids = Set(reports.map(\.id))
        let nameless = deadLetters.count { $0.reason == "damaged" && !($0.id.map(ids.contains) ?? false) }
        guard let told else { return late.map { .lost($0.mark) } }
        let untold = missing.count > told + nameless ? [Violation.lossUntold(missing: missing.count, told: told + nameless)] : []
        return late.map { .lost($0.mark) } + untold
    }

    /// How many events the books and the events about damage say are lost; nil if some of them do not know.
    private var told: Int? {
        guard let purged else { return nil }
        // One that was lost itself with a later file may have told of any number.
        guard notices.count >= filesAside else { return nil }
        var told = purged + purgedLetters
        for notice in notices {
            guard let lost = notice.lost, let deadLetters = notice.lostLetters else { return nil }
            told += lost + deadLetters
        }
        return told
    }

    private var twice: [Violation] {
        let byID = Dictionary(grouping: rows, by: \.id).filter { $0.value.count > 1 }
        let byMark = Dictionary(grouping: rows.filter { $0.mark != nil }, by: \.mark).filter { $0.value.count > 1 }
        let twice = Set(byID.values.compactMap { $0.first?.mark } + byMark.keys.compactMap { $0 })
        let stored = Set(rows.map(\.id))
        let dead = deadLetters.filter { $0.reason != "conflict" }
        // What was stored and waited for its answer when the damage came, or what a lost commit had settled, can be in both.
        let both = dead.filter { deadLetter in
            // Of two events under one id, one can be stored and the other dead.
            guard let id = deadLetter.id, stored.contains(id), rivals[id] == nil else { return false }
            return !(deadLetter.reason == "damaged" && isDamaged) && !logWasDamaged
        }
        let deadTwice = Dictionary(grouping: dead.compactMap(\.id)) { $0 }.filter {
            $0.value.count > 1 && rivals[$0.key] == nil && !isDamaged
        }
        return twice.map { .storedTwice($0) } + both.map { .storedAndDead($0.mark) } + deadTwice.keys.map { .deadTwice($0) }
            + deadLetters.filter(\.reason.isEmpty).map { _ in .withoutReason }
    }

    // MARK: - Fidelity (I3)

    private func mayExist(_ mark: Mark) -> Bool {
        guard let threads = spokenOf[mark.run] else { return false }
        return mark.index >= 0 && mark.index <= threads[mark.thread, default: 0] + 1
    }

    private var strangers: [Violation] {
        rows.filter { row in
            if row.name == "$QueueDamaged" { return !isDamaged }
            return !(row.mark.map(mayExist) ?? false)
        }.map { .unexpected($0.id, $0.mark) }
    }

    private var changed: [Violation] {
        let reported = Dictionary(reports.map { ($0.id, $0) }, uniquingKeysWith: { first, _ in first })
        return rows.filter { row in
            if row.name == "$QueueDamaged" { return false }
            if !row.isWhole { return true }
            guard let report = reported[row.id], let mark = row.mark else { return false }
            if rivals[row.id]?.contains(mark) == true { return false }
            if mark != report.mark { return true }
            // The events of a damaged file go on under the name that the file has, which has no check sum.
            if let install = report.install, row.install != install, !isDamaged, rivals[row.id] == nil { return true }
            if let sequence = report.sequence, sequence > 0, row.sequence != sequence, row.install == report.install, rivals[row.id] == nil
            {
                return true
            }
            return false
        }.map { .changed($0.id, $0.mark) }
    }

    // MARK: - What must not be stored

    private var arrivedAfterPurge: [Violation] {
        // Commits that were taken back can have been a purge's.
        guard !logWasDamaged else { return [] }
        return purges.flatMap { purge in
            rows.compactMap { row -> Violation? in
                guard let mark = row.mark, !mark.run.hasPrefix("import"), let step = steps[mark.run], step < purge.step,
                    !purge.stored.contains(row.id), !purge.deadLetters.contains(row.id)
                else { return nil }
                return .storedAfterPurge(mark, step: purge.step)
            }
        }
    }

    private var storedAlthoughRefused: [Violation] {
        rows.compactMap(\.mark).filter { refused.contains($0) || refusedRuns.contains($0.run) }.map { .storedAlthoughRefused($0) }
    }

    // MARK: - Sequence (I7)

    private struct Place: Hashable {
        var install: EventID
        var sequence: Int64
    }

    private var sequences: [Violation] {
        guard !logWasDamaged else { return [] }
        var owners: [Place: Set<EventID>] = [:]
        func note(_ install: EventID?, _ sequence: Int64?, _ id: EventID?) {
            guard let install, let sequence, sequence > 0, let id else { return }
            owners[Place(install: install, sequence: sequence), default: []].insert(id)
        }
        for row in rows { note(row.install, row.sequence, row.id) }
        // Of a letter whose bytes changed the id may not be its event's any more.
        for deadLetter in deadLetters where deadLetter.reason != "damaged" { note(deadLetter.install, deadLetter.sequence, deadLetter.id) }
        let arrived = Dictionary(grouping: owners.keys, by: \.install).mapValues { Set($0.map(\.sequence)) }
        for report in reports where rivals[report.id] == nil { note(report.install, report.sequence, report.id) }
        let repeated =
            owners.filter { $0.value.count > 1 }.keys.map { Violation.repeatedSequence(install: $0.install, $0.sequence) } + fallenBack
        // An event that is told again under its id takes a sequence and is a duplicate.
        guard lastPurge == nil, !isDamaged else { return repeated }
        let gaps = arrived.map { ($0.key, Int($0.value.max() ?? 0) - $0.value.count) }
        let excused = repeats
        return repeated
            + (gaps.reduce(0) { $0 + $1.1 } > excused ? gaps.filter { $0.1 > 0 }.map { .gap(install: $0.0, missing: $0.1) } : [])
    }

    /// A later process of an install gives higher numbers than an earlier one.
    private var fallenBack: [Violation] {
        let steps = Dictionary(grouping: reports.filter { $0.sequence ?? 0 > 0 && $0.install != nil }, by: \.install)
        return steps.flatMap { install, reports -> [Violation] in
            var last: Int64 = 0
            return Dictionary(grouping: reports, by: \.step).sorted { $0.key < $1.key }.compactMap { step, reports in
                let numbers = reports.compactMap(\.sequence)
                defer { last = max(last, numbers.max() ?? 0) }
                guard let install, let lowest = numbers.min(), lowest <= last else { return nil }
                return .sequenceFellBack(install: install, step: step)
            }
        }
    }

    /// How many events were tracked more than once, or under another's id.
    var repeats = 0

    // MARK: - Damage (I11)

    private var damage: [Violation] {
        var violations: [Violation] = []
        if filesAside > damages { violations.append(.needlesslySetAside(files: filesAside, damages: damages)) }
        // The last one at least must be told of.
        if filesAside > 0, notices.isEmpty, purges.isEmpty, lastPurge == nil { violations.append(.damageNotReported(files: filesAside)) }
        return violations
    }

    // MARK: - Books (I12, I15)

    private var books: [Violation] {
        guard let status else { return [.incident("no status")] }
        var violations: [Violation] = []
        if status.waiting != 0 || status.files.contains(where: { $0.failure != nil }) {
            violations.append(.notDrained("\(status)"))
        }
        let sum = status.waiting + status.stored + status.duplicates + status.dead_lettered + status.removed
        if status.created != sum || status.dead_letters != deadLetters.count {
            violations.append(.booksDoNotBalance("\(status), \(deadLetters.count) letters"))
        }
        if !isDamaged {
            // What was refused at intake is no event; the rest must be what the purges said.
            let gone = status.dropped.filter { !["shut_down", "opted_out", "mailbox_full"].contains($0.key) }
            if let purged, gone != (purged > 0 ? ["purged": purged] : [:]) {
                violations.append(.dropsMiscounted("\(purged) were purged: \(status)"))
            }
        }
        return violations
    }
}

extension HistoryAudit: CustomStringConvertible {
    /// What a run shows of a history that went well.
    var description: String {
        "\(reports.count) reports, \(rows.count) rows, \(deadLetters.count) letters, \(missing.count) missing, "
            + "\(told.map(String.init) ?? "?") told, \(purges.count) purges, \(damages) damages, \(filesAside) files set aside"
    }
}

/// What `hapax status --json` says.
struct HistoryStatus: Decodable, Sendable {
    struct File: Decodable, Sendable {
        var file: Int
        var failure: String?
    }

    var files: [File]
    var waiting, created, stored, duplicates, dead_lettered, removed, dead_letters, set_aside_files: Int
    var dropped: [String: Int]
    var opted_out: Bool
}
