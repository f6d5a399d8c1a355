import ArgumentParser
import Foundation
import HapaxClient
import HapaxModel

/// One of a directory's files: one that nobody owns is opened, of another only what its owner last wrote is known.
enum FoundFile {
    /// Ours until it is closed.
    case open(QueueFile)
    /// A running process works on it. nil if it has not said anything yet.
    case owned(FileStatus?)
    case unusable(StorageFailure)

    init(_ number: Int, in directory: QueueDirectory) {
        do throws(QueueOpenError) {
            self = .open(try QueueFile(try FileClaim(number, in: directory), durability: .power))
        } catch {
            switch error {
            case .taken: self = .owned(FileStatus.read(number, in: directory))
            case .unusable(let failure): self = .unusable(failure)
            }
        }
    }
}

/// What a command saw of the files that it could not open.
struct UnopenedFiles {
    private(set) var owned: [Int] = []
    private(set) var unusable: [Int: StorageFailure] = [:]

    /// - Returns: The file if it is open.
    mutating func open(_ number: Int, in directory: QueueDirectory) -> QueueFile? {
        switch FoundFile(number, in: directory) {
        case .open(let file): return file
        case .owned: owned.append(number)
        case .unusable(let failure): unusable[number] = failure
        }
        return nil
    }

    /// - Parameters:
    ///   - what: Of theirs that the command has not seen or done.
    ///   - files: Those of a running process in which there is such a thing; all if nil.
    func complain(of what: String, inOwned files: [Int]? = nil) {
        let owned = files ?? owned
        if !owned.isEmpty {
            let files = owned.map { "\($0)" }.joined(separator: ", ")
            Terminal.complain("running processes hold file \(files) of the queue: only they can work on \(what) there")
        }
        for (number, failure) in unusable.sorted(by: { $0.key < $1.key }) {
            Terminal.complain("file \(number) of the queue cannot be used: \(failure)")
        }
    }

    /// Ends a command that wanted to do something with all files.
    func requireAll() throws {
        if !unusable.isEmpty { throw ExitCode.failure }
        if !owned.isEmpty { throw ExitCode.queueTaken }
    }
}

extension QueueOptions {
    /// The numbers of the directory's files, or the end of the command with a message.
    func numbers() throws -> [Int] {
        do throws(StorageFailure) { return try directory.numbers() } catch { throw Terminal.queueCannotBeUsed(error) }
    }

    /// The destination that a person means, its name, and the files for it; nil with a message where none or several are called so.
    ///
    /// - Parameters:
    ///   - text: See ``Destinations/matching(_:among:)``.
    ///   - own: Those that cannot be meant.
    func destination(_ text: String, besides own: Set<EventID> = []) throws -> (id: EventID, name: String, files: [Int])? {
        let places = try numbers().map { ($0, FileClaim.note(of: $0, in: directory)?.destination) }
        let (all, ids) = (Destinations(in: directory), Set(places.compactMap(\.1)).subtracting(own))
        let found = all.matching(text, among: ids)
        if let id = found.first, found.count == 1 { return (id, all.name(id), places.filter { $0.1 == id }.map(\.0)) }
        let problem = found.isEmpty ? "no file of the queue is for" : "more than one destination is called"
        Terminal.complain("\(problem) \(text). There are: \(ids.isEmpty ? "none" : all.names(found.isEmpty ? ids : found))")
        return nil
    }
}

/// An event or a dead letter among those of all files: `2-17` is the one with sequence 17 in file 2.
struct RowName: ExpressibleByArgument, Hashable, Comparable, CustomStringConvertible {
    var file: Int
    var number: Int64

    init(_ file: Int, _ number: Int64) { (self.file, self.number) = (file, number) }

    init?(argument: String) {
        let parts = argument.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let file = Int(parts[0]), let number = Int64(parts[1]), file > 0, number >= 0 else { return nil }
        self.init(file, number)
    }

    var description: String { "\(file)-\(number)" }

    static func < (left: RowName, right: RowName) -> Bool { (left.file, left.number) < (right.file, right.number) }
}

extension DeliveryFailure {
    /// For people. What a command ends itself, it ends because its time is over.
    func text(timeout: Int, _ detail: String?) -> String {
        self == .transport(.aborted) ? "it was not done within the \(timeout) seconds of --timeout" : described(detail)
    }
}

extension Terminal {
    static func complain(ofOthers look: Leftovers.Look?) {
        guard let others = look?.others, others > 0 else { return }
        let files = others == 1 ? "1 file of the queue holds" : "\(others) files of the queue hold"
        complain(
            "\(files) events for another server or key. hapax status names it, and hapax flush --replaces ID sends it here")
    }

    static func complain(of damages: [QueueDamage]) {
        for damage in damages {
            let are = damage.isRecovered ? "lost" : "not recovered yet"
            let lost = damage.lost.map { $0 == 0 ? "none of its events is \(are)" : "\($0) of its events are \(are)" }
            // It goes once it is recovered.
            let name = damage.isRecovered ? "" : " as \(damage.file)"
            let what = lost ?? "how many of its events are \(are) is not known"
            complain("a damaged file of the queue was set aside\(name): \(damage.recovered) events were recovered, and \(what)")
        }
    }

    static func queueCannotBeUsed(_ error: any Error) -> ExitCode {
        complain("the queue cannot be used: \(StorageFailure(error))")
        return .failure
    }

    /// What was done before the failure stays done.
    static func working<Value>(_ body: () throws -> Value) throws -> Value {
        do { return try body() } catch let code as ExitCode { throw code } catch { throw queueCannotBeUsed(error) }
    }
}
