import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

extension QueueReader {
    /// Looks at the queue, or ends the command with a message.
    ///
    /// - Returns: nil if there is no queue.
    static func forCommand(_ queue: QueueOptions) throws -> QueueReader? {
        try complaining { () throws(StorageFailure) in try QueueReader(directory: queue.directory) }
    }

    /// What reading came to, or the end of the command with a message.
    static func complaining<Value>(_ read: () throws(StorageFailure) -> Value) throws -> Value {
        do throws(StorageFailure) { return try read() } catch { throw Terminal.queueCannotBeRead(error) }
    }

    /// Looks at a queue that is to be taken then, or ends the command with a message. Damage is no obstacle: who takes the queue sets its
    /// file aside, and saves what can be read.
    ///
    /// - Returns: Whether there is a queue, and what was seen of it; nil if it is damaged.
    static func beforeTaking<Seen>(
        _ queue: QueueOptions, _ look: (QueueReader) throws(StorageFailure) -> Seen
    ) throws -> (isThere: Bool, seen: Seen?) {
        do throws(StorageFailure) {
            guard let reader = try QueueReader(directory: queue.directory) else { return (false, nil) }
            return (true, try look(reader))
        } catch {
            guard error.isOfDamage else { throw Terminal.queueCannotBeRead(error) }
            return (true, nil)
        }
    }

    /// Whether there is one to be taken, or a file from which it can be made anew.
    static func isThere(_ queue: QueueOptions) throws -> Bool {
        try beforeTaking(queue) { _ in }.isThere || queue.directory.holdsUnsalvaged
    }
}

extension StorageFailure {
    /// SQLITE_ERROR, SQLITE_CORRUPT or SQLITE_NOTADB, without what extends them.
    fileprivate var isOfDamage: Bool { [1, 11, 26].contains(code & 0xFF) }
}

extension EventQueue {
    /// Takes the queue for itself, or ends the command with a message. What is done with it is durable through a power cut.
    static func forCommand(_ queue: QueueOptions) throws -> EventQueue {
        do throws(QueueOpenError) {
            return try open(queue.path, whenTaken: .refuse, durability: .power, clock: SystemClock())
        } catch {
            switch error {
            case .taken: throw Terminal.queueIsTaken(queue)
            case .unusable(let failure):
                Terminal.complain("the queue cannot be used: \(failure)")
                throw ExitCode.failure
            }
        }
    }

    /// Changes the queue, or ends the command with a message.
    func changing<Value>(_ change: (EventQueue) throws -> Value) throws -> Value {
        do { return try flushed(try change(self)) } catch { throw Terminal.queueCannotBeWritten(error) }
    }

    /// The same with what a damaged file held.
    func changingAll<Value>(_ change: (EventQueue) async throws -> Value) async throws -> Value {
        do { return try flushed(try await salvaging(change)) } catch { throw Terminal.queueCannotBeWritten(error) }
    }

    private func flushed<Value>(_ value: Value) throws -> Value {
        try flushDrive()
        return value
    }
}

extension Terminal {
    fileprivate static func queueCannotBeRead(_ failure: StorageFailure) -> ExitCode {
        complain(
            "the queue cannot be read: \(failure)"
                + (failure.isOfDamage ? "; the next hapax flush or track sets the file aside and saves what it can" : ""))
        return .failure
    }

    fileprivate static func queueCannotBeWritten(_ error: any Error) -> ExitCode {
        complain("the queue, or a damaged file that was set aside, cannot be worked on: \(StorageFailure(error)); nothing was changed")
        return .failure
    }

    static func queueIsTaken(_ queue: QueueOptions) -> ExitCode {
        complain("another process works on the queue in \(queue.path); run the command again when that has ended")
        return .queueTaken
    }
}
