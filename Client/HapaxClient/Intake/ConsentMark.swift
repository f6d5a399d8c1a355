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

/// What a directory's user has agreed to, as it is kept.
struct KeptConsent: Hashable, Sendable, Codable {
    var consent: Consent
    /// When it was denied last, in Unix milliseconds, so that each denial has another number; 0: never. nil: nobody can tell.
    var denied: Int64? = 0

    private enum CodingKeys: String, CodingKey {
        case consent
        case denied = "denied_at"
    }

    /// Nobody who may have denied it is taken for somebody who has not.
    static let unknown = KeptConsent(consent: .denied, denied: nil)

    /// Under which denial an event that is taken now waits for its consent; nil if it does not wait.
    var pending: Int64? { consent == .pending ? denied : nil }

    func changed(to consent: Consent, now: Int64) -> KeptConsent {
        KeptConsent(consent: consent, denied: consent == .denied ? max((denied ?? 0) + 1, now) : denied ?? now)
    }
}

/// The directory's file `consent`. Not in the queue's database: whoever denied it has done so also when that is damaged, deleted or replaced (D16).
struct ConsentFile: Sendable {
    private let file: SmallFile
    private let directory: QueueDirectory

    init(_ directory: QueueDirectory, flush: @escaping @Sendable (Int32) -> Int32 = DriveCache.synchronize) {
        (self.directory, file) = (directory, SmallFile(path: directory.consentPath, flush: flush))
    }

    /// nil if nobody has said anything.
    ///
    /// - Throws: Also if it cannot be understood, or if nobody can tell whether it is there.
    func read() throws -> KeptConsent? {
        if let data = try file.read() { return try JSONDecoder().decode(KeptConsent.self, from: data) }
        // As versions before 0.1 said it: a file that is there or not.
        return try SmallFile(path: directory.optOutPath).read().map { _ in KeptConsent(consent: .denied) }
    }

    /// Durable on return.
    ///
    /// - Parameter atLeast: The number of a denial that could not be kept.
    @discardableResult
    func change(to consent: Consent, now: Int64, atLeast denied: Int64 = 0) throws -> KeptConsent {
        var kept = KeptConsent.unknown
        // What is not known to be kept does not hold: nobody takes or sends events of somebody who may have denied it.
        try file.replace(mayStay: consent == .denied) {
            // One that nobody can read has a number that nobody knows: the new one is later.
            do { kept = try read() ?? KeptConsent(consent: .granted) } catch { kept = .unknown }
            kept.denied = kept.denied.map { max($0, denied) }
            kept = kept.changed(to: consent, now: now)
            return try JSONEncoder().encode(kept)
        }
        unlink(directory.optOutPath)
        return kept
    }

    /// Where nobody has said anything, this is said from now on.
    func begin(_ consent: Consent) throws {
        guard consent != .granted, try read() == nil else { return }
        try file.begin(try JSONEncoder().encode(KeptConsent(consent: consent)))
    }
}

extension QueueDirectory {
    /// What holds for who only looks.
    package var consent: Consent {
        do { return try ConsentFile(self).read()?.consent ?? .granted } catch { return .denied }
    }

    /// Durable on return.
    package func setConsent(_ consent: Consent) throws {
        try ConsentFile(self).change(to: consent, now: SystemClock().unixMilliseconds)
    }
}

/// What a client knows of the consent of its directory's user.
struct ConsentMark: Sendable {
    private let file: ConsentFile
    private let directory: QueueDirectory
    /// What was found last.
    private(set) var known = KeptConsent.unknown
    /// A denial that could not be kept holds as long as this value does, or until something else is kept.
    private var unwritten: KeptConsent?

    init(_ directory: QueueDirectory, file: ConsentFile? = nil) {
        (self.directory, self.file) = (directory, file ?? ConsentFile(directory))
        _ = current()
    }

    /// What holds now. Where nobody can tell, as while the directory is away, it is what was found last.
    mutating func current() -> KeptConsent {
        if let unwritten { return unwritten }
        do {
            let found = try file.read()
            if found != nil || access(directory.path, F_OK) == 0 { known = found ?? KeptConsent(consent: .granted) }
        } catch {
            // Nobody can tell.
        }
        return known
    }

    /// Durable on return. If it throws, a denial holds as long as this value does.
    mutating func set(_ consent: Consent, now: Int64) throws -> KeptConsent {
        if consent == .denied { unwritten = current().changed(to: .denied, now: now) }
        known = try file.change(to: consent, now: now, atLeast: unwritten?.denied ?? 0)
        unwritten = nil
        return known
    }
}
