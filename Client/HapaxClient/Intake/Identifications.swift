import Foundation
import HapaxModel

/// A user for whom `$identify` is tracked, as `identity.json` keeps it.
struct Identified: Hashable, Sendable, Codable {
    /// Stands for the anonymous and the login id. A hash: who has logged out need not be known from the file.
    var pair: String
    /// The event, while it is not known to be stored for good; nil once it is.
    var event: String?
    /// Taken while the user's consent was pending: behind which decision (``KeptConsent/number``).
    var pending: Int64?

    init(_ anonymousID: String, _ loginID: String) {
        pair = EventID.derived(name: "$identify", key: anonymousID + "\u{0}" + loginID).description
    }

    /// The latest that are kept.
    static let maximumKept = 100
}

/// The `$identify` events of a client on their way to its file: for each user one of all runs and processes is stored.
///
/// Before the commit the whole event is written to `identity.json`, under its lock. A process that finds it there stores that very event: the server
/// takes both for one, though each process may say something else of itself. After the commit the user is noted there as known.
final class Identifications: Sendable {
    private struct State {
        /// For whom one has been tracked last in this run.
        var latest: Identified?
        /// Tracked and not committed yet, by their ids.
        var waiting: [EventID: Identified] = [:]
    }

    private let state = Locked(State())
    private let file: IdentityFile

    init(_ file: IdentityFile) { self.file = file }

    /// - Returns: Whether the event is to be tracked under this id; call ``wasRefused(_:)`` if it is not taken.
    func expect(_ user: Identified, _ id: EventID) -> Bool {
        state.withLock { state in
            guard state.latest != user else { return false }
            (state.latest, state.waiting[id]) = (user, user)
            return true
        }
    }

    /// It is still to be recorded, as where the user has opted out.
    func wasRefused(_ id: EventID) {
        state.withLock { state in
            let user = state.waiting.removeValue(forKey: id)
            if state.latest == user { state.latest = nil }
        }
    }

    /// A user who logs in again is identified again.
    func forget() { state.withLock { $0.latest = nil } }

    // MARK: - On the writer's thread

    /// The events of one commit, and the users of those that are among them.
    struct Commit {
        var events: [PreparedEvent]
        var users: [Int: Identified] = [:]
        /// Their events are stored already.
        var known: Set<Int> = []
    }

    /// Before the commit, and again before each further attempt.
    func prepare(_ events: [PreparedEvent], _ consent: KeptConsent) throws -> Commit {
        var commit = Commit(events: events)
        let waiting = state.withLock { $0.waiting }
        guard !waiting.isEmpty else { return commit }
        for (index, event) in events.enumerated() where event.problem == nil {
            if let user = waiting[event.id] { commit.users[index] = user }
        }
        guard !commit.users.isEmpty else { return commit }
        // What is noted as stored stays so.
        let stored = Set((try file.read()?.identified ?? []).filter { $0.event == nil }.map(\.pair))
        commit.known = Set(commit.users.filter { stored.contains($0.value.pair) }.keys)
        let new = commit.users.filter { !commit.known.contains($0.key) }
        guard !new.isEmpty else { return commit }
        _ = try file.change { kept in
            for (index, user) in new.sorted(by: { $0.key < $1.key }) {
                let own = commit.events[index]
                let found = kept.identified.firstIndex { $0.pair == user.pair }
                if let found, kept.identified[found].event == nil {
                    commit.known.insert(index)
                } else if let found, let event = kept.identified[found].event(asIn: own, consent) {
                    commit.events[index] = event
                } else {
                    if let found { kept.identified.remove(at: found) }
                    var user = user
                    (user.event, user.pending) = (String(decoding: own.bytes, as: UTF8.self), own.pending)
                    kept.identified = (kept.identified + [user]).suffix(Identified.maximumKept)
                }
            }
        }
        return commit
    }

    /// After it.
    func committed(_ commit: Commit, _ events: [PreparedEvent], _ appended: QueueFile.Appended) {
        guard !commit.users.isEmpty else { return }
        state.withLock { state in for index in commit.users.keys { state.waiting[events[index].id] = nil } }
        let new = commit.users.filter { !commit.known.contains($0.key) }
        guard !new.isEmpty else { return }
        // Where it cannot be noted the same event is stored again by the next run, and the server takes both for one.
        _ = try? file.change { kept in
            for (index, user) in new {
                guard let found = kept.identified.firstIndex(where: { $0.pair == user.pair }) else { continue }
                if appended.deadLetters[index] != nil || appended.denied.contains(index) || appended.removed.contains(index) {
                    kept.identified.remove(at: found)
                } else if commit.events[index].pending == nil {
                    (kept.identified[found].event, kept.identified[found].pending) = (nil, nil)
                }
            }
        }
    }
}

extension Identified {
    /// The event that is kept, to be stored in place of another one.
    ///
    /// - Returns: nil if it is none, or the user denied consent after it was taken.
    fileprivate func event(asIn own: PreparedEvent, _ consent: KeptConsent) -> PreparedEvent? {
        guard let event, pending.map({ consent.decision(after: $0) }) != false else { return nil }
        let bytes = Array(event.utf8)
        let scanned = EventScanner.scan(bytes[...])
        guard scanned.problem == nil, let id = scanned.id else { return nil }
        return PreparedEvent(id: id, time: scanned.time, bytes: bytes, pending: own.pending, reserved: own.reserved)
    }
}
