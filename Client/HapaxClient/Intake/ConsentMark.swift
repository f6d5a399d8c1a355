import Foundation
import HapaxModel
import HapaxSQLite

/// What the user of a directory has agreed to.
public enum Consent: String, Sendable, Hashable, CaseIterable, Codable {
    /// Events are taken and sent.
    case granted
    /// Nobody has asked yet: events are taken and stored, and nothing is sent.
    case pending
    /// Events are refused. What was taken while it was ``pending`` is deleted; what was taken before is still sent.
    case denied
}

/// Why a change of the ``Consent`` may not last.
public enum ConsentError: Error, Hashable, Sendable {
    /// It is not on disk. A denial holds in this process all the same; anything else does not.
    case notPersisted(StorageFailure)
}

extension ConsentError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .notPersisted(let failure): "the user's consent could not be kept: \(failure)"
        }
    }
}

/// What a directory's user has agreed to, as it is kept, and what was decided before: an event that waits for consent has the first decision that
/// comes behind it, however many follow before anybody looks.
struct KeptConsent: Hashable, Sendable {
    struct Decision: Hashable, Sendable, Codable {
        /// In Unix milliseconds, later than the one before.
        var at: Int64
        var isGranted: Bool
    }

    var consent: Consent
    /// Oldest first; nil: not known.
    var decisions: [Decision]? = []
    /// The latest of those that are not kept any more; 0: none.
    var forgotten: Int64 = 0

    /// More are never about events that still wait: each is followed by events and by a question.
    private static let maximumDecisions = 100

    /// What a change follows if what was kept cannot be read: nobody who may have denied it is taken for somebody who has not.
    static let unknown = KeptConsent(consent: .denied, decisions: nil)

    /// The latest decision's; 0 if there was none, nil if that is not known.
    var number: Int64? { decisions.map { $0.last?.at ?? forgotten } }

    /// Behind which decision an event waits that is taken now; nil if it does not wait.
    var pending: Int64? { consent == .pending ? number : nil }

    /// The first one behind `number`: whether it granted what waited. nil: none yet.
    ///
    /// - Parameter number: Negative for an event of which only that is known that it waited: then no denial may ever have been.
    func decision(after number: Int64) -> Bool? {
        guard let decisions else { return nil }
        if number < 0 {
            if forgotten > 0 || decisions.contains(where: { !$0.isGranted }) { return false }
            return consent == .granted ? true : nil
        }
        return number < forgotten ? false : decisions.first { $0.at > number }?.isGranted
    }

    func changed(to consent: Consent, now: Int64) -> KeptConsent {
        var changed = self
        changed.consent = consent
        if decisions == nil {
            // Of what nobody can read each number may have been given: those from now on are later.
            (changed.forgotten, changed.decisions) = (now, [])
        }
        // The first one counts also if it changes nothing: who removed the file has left events that wait for it.
        guard consent != .pending, consent != self.consent || decisions?.isEmpty != false else { return changed }
        changed.decisions = (decisions ?? []) + [Decision(at: max((changed.number ?? now) + 1, now), isGranted: consent == .granted)]
        if let all = changed.decisions, all.count > Self.maximumDecisions {
            (changed.forgotten, changed.decisions) = (all[0].at, Array(all.dropFirst()))
        }
        return changed
    }
}

extension KeptConsent: Codable {
    init(from decoder: any Decoder) throws {
        let values = try decoder.container(keyedBy: CodingKeys.self)
        consent = try values.decode(Consent.self, forKey: .consent)
        // Of one that people have written.
        decisions = try values.decodeIfPresent([Decision].self, forKey: .decisions) ?? []
        forgotten = try values.decodeIfPresent(Int64.self, forKey: .forgotten) ?? 0
    }

    private enum CodingKeys: CodingKey { case consent, decisions, forgotten }
}

/// The directory's file `consent`. Not in the queue's database: whoever denied it has done so also when that is damaged, deleted or replaced (D16).
struct ConsentFile: Sendable {
    private let file: SmallFile
    private let directory: QueueDirectory

    init(_ directory: QueueDirectory, flush: @escaping @Sendable (Int32) -> Int32 = DriveCache.synchronize) {
        (self.directory, file) = (directory, SmallFile(path: directory.consentPath, flush: flush))
    }

    /// nil if no consent has been set.
    ///
    /// - Throws: Also if it cannot be understood, or if it is not known whether it is there.
    func read() throws -> KeptConsent? {
        if let kept = try file.decoded(KeptConsent.self) { return kept }
        // As versions before 0.1 kept it: a file that is there or not.
        return try SmallFile(path: directory.optOutPath).read().map { _ in KeptConsent(consent: .denied) }
    }

    /// Durable on return.
    ///
    /// - Parameter denial: One that could not be kept.
    @discardableResult
    func change(to consent: Consent, now: Int64, after denial: Int64? = nil) throws -> KeptConsent {
        var kept = KeptConsent.unknown
        // What is not known to be kept does not hold: nobody takes or sends events of somebody who may have denied it.
        try file.replace(mayStay: consent == .denied) {
            do { kept = try read() ?? KeptConsent(consent: .granted) } catch { kept = .unknown }
            if let denial { kept = kept.changed(to: .denied, now: denial) }
            kept = kept.changed(to: consent, now: now)
            return try JSONEncoder().encode(kept)
        }
        unlink(directory.optOutPath)
        return kept
    }

    /// Where no consent has been set, this one is from now on.
    func begin(_ consent: Consent) throws {
        guard consent != .granted, try read() == nil else { return }
        try file.begin(try JSONEncoder().encode(KeptConsent(consent: consent)))
    }
}

extension QueueDirectory {
    /// What holds for who only looks.
    ///
    /// - Throws: If it cannot be read.
    package var consent: Consent { get throws { try ConsentFile(self).read()?.consent ?? .granted } }

    /// Durable on return.
    package func setConsent(_ consent: Consent) throws {
        try ConsentFile(self).change(to: consent, now: SystemClock().unixMilliseconds)
        // A client's start does it otherwise; nothing of it is sent.
        if consent == .denied { try? IdentityFile(self).forgetWaiting() }
    }
}

/// What a client knows of the consent of its directory's user.
struct ConsentMark: Sendable {
    private let file: ConsentFile
    private let directory: QueueDirectory
    /// What was found last.
    private(set) var known: KeptConsent
    /// Whether that was a file: what somebody deletes says nothing.
    private var wasThere: Bool
    /// Why it could not be read when it was last looked for, and whether somebody has said so.
    private var failure: (why: StorageFailure, isSaid: Bool)?
    /// A denial that could not be kept holds as long as this value does, or until something else is kept.
    private var unwritten: KeptConsent?

    /// - Throws: If it cannot be read.
    init(_ directory: QueueDirectory, file: ConsentFile? = nil) throws {
        (self.directory, self.file) = (directory, file ?? ConsentFile(directory))
        let found = try self.file.read()
        (known, wasThere) = (found ?? KeptConsent(consent: .granted), found != nil)
    }

    /// What holds now. While the directory or the file is away, or cannot be read, it is what was found last.
    mutating func current() -> KeptConsent {
        if let unwritten { return unwritten }
        do {
            let found = try file.read()
            if let found {
                (known, wasThere) = (found, true)
            } else if !wasThere, access(directory.path, F_OK) == 0 {
                known = KeptConsent(consent: .granted)
            }
            failure = nil
        } catch {
            let why = StorageFailure(error)
            if failure?.why != why { failure = (why, false) }
        }
        return known
    }

    /// Why it cannot be read, once.
    mutating func takeFailure() -> StorageFailure? {
        guard let failure, !failure.isSaid else { return nil }
        self.failure?.isSaid = true
        return failure.why
    }

    /// Durable on return. If it throws, a denial holds as long as this value does.
    mutating func set(_ consent: Consent, now: Int64) throws -> KeptConsent {
        if consent == .denied { unwritten = current().changed(to: .denied, now: now) }
        (known, wasThere) = (try file.change(to: consent, now: now, after: unwritten?.number), true)
        unwritten = nil
        return known
    }
}
