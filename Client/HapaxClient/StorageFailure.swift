import Foundation
import GRDB

/// Why a file could not be worked on, without its contents.
public struct StorageFailure: Error, Hashable, Sendable, CustomStringConvertible {
    /// SQLite's extended result code (https://www.sqlite.org/rescode.html), or 0 if the failure was not SQLite's.
    public let code: Int32
    /// SQLite's name for it, or the system's.
    public let description: String
}

extension StorageFailure {
    static let earlierVersion = StorageFailure(
        code: 0, description: "the directory holds the queue of an earlier version, which is left as it is: use another directory")

    static let sharedDisk = StorageFailure(
        code: 0, description: "the directory is on a network file system: use one on a disk of this machine")

    static let withoutFirstNames = StorageFailure(
        code: 0,
        description:
            "the directory's file system can neither link files nor rename one only to a name that is free: use one on another disk")

    static let notOpen = StorageFailure(code: 0, description: "the queue is not open")

    static let newerVersion = StorageFailure(code: 0, description: "the queue was made by a newer version")

    /// Whether it lies with one queue file, of a newer version, of another user or without a note, while another may be opened.
    var isOfOneFile: Bool { [.newerVersion, .withoutNote, StorageFailure(errno: EACCES)].contains(self) }

    static let tooManyFiles = StorageFailure(
        code: 0, description: "the directory holds 10,000 files that somebody owns or that are of others")

    static let withoutNote = StorageFailure(code: 0, description: "its lock file does not say whose it is")

    init(errno number: Int32) {
        self.init(code: 0, description: String(cString: strerror(number)))
    }

    /// Only codes and their fixed texts: messages of SQLite can quote values.
    package init(_ error: any Error) {
        if let failure = error as? StorageFailure {
            self = failure
        } else if let error = error as? UnreadableFile {
            self = error.failure
        } else if error is NewerSchema {
            self = .newerVersion
        } else if let error = error as? DatabaseError {
            let text = "\(error.extendedResultCode)"
            self.init(code: error.extendedResultCode.rawValue, description: text)
        } else if let error = error as? CocoaError {
            if let cause = error.underlying as? POSIXError {
                self.init(cause)
                return
            }
            self.init(code: 0, description: "file error \(error.code.rawValue)")
        } else if let error = error as? POSIXError {
            self.init(errno: error.code.rawValue)
        } else {
            self.init(code: 0, description: "\(type(of: error))")
        }
    }
}
