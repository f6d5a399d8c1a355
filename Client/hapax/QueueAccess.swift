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
        do throws(StorageFailure) {
            return try read()
        } catch {
            // SQLITE_ERROR, SQLITE_CORRUPT and SQLITE_NOTADB, without what extends them.
            let isDamaged = [1, 11, 26].contains(error.code & 0xFF)
            Terminal.complain(
                "the queue cannot be read: \(error)"
                    + (isDamaged ? "; the next hapax flush or track sets the file aside and saves what it can" : ""))
            throw ExitCode.failure
        }
    }
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
        do { return try change(self) } catch { throw Terminal.queueCannotBeWritten(error) }
    }

    /// The same with what a damaged file held.
    func changingAll<Value>(_ change: (EventQueue) async throws -> Value) async throws -> Value {
        do { return try await salvaging(change) } catch { throw Terminal.queueCannotBeWritten(error) }
    }
}

extension Terminal {
    fileprivate static func queueCannotBeWritten(_ error: any Error) -> ExitCode {
        complain("the queue, or a damaged file that was set aside, cannot be worked on: \(StorageFailure(error)); nothing was changed")
        return .failure
    }

    static func queueIsTaken(_ queue: QueueOptions) -> ExitCode {
        complain("another process works on the queue in \(queue.path); run the command again when that has ended")
        return .queueTaken
    }
}
