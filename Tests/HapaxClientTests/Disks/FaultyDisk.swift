import GRDBSQLite
import HapaxModel
import TestSupport

/// A disk that fails when it is told to: of what is done with the files below one directory, the operation of a given number returns an
/// error.
final class FaultyDisk: Sendable {
    typealias Operation = DiskLayer.Operation

    struct Fault: Sendable {
        /// Which of all operations on the directory's files fails, from 0, and how many behind it.
        var at: Int
        var count = 1
        /// What SQLite is told, if the operation is one of these.
        var code: Int32
        var operations: Set<Operation> = Set(Operation.allCases)
    }

    private struct State: Sendable {
        var fault: Fault?
        var operations = 0
        var failures = 0
    }

    private let directory: String
    private let state = Locked(State())

    init(_ directory: String) {
        self.directory = directory
        DiskLayer.watch(directory, DiskLayer.Watcher(refuses: { [state] in Self.failure(of: $0, state) }))
    }

    deinit { DiskLayer.watch(directory, nil) }

    /// From now on, counted from 0.
    func fail(_ fault: Fault?) {
        state.withLock { $0 = State(fault: fault) }
    }

    /// Operations that failed.
    var failures: Int { state.withLock { $0.failures } }

    private static func failure(of operation: Operation, _ state: Locked<State>) -> Int32? {
        state.withLock { state in
            guard let fault = state.fault, fault.operations.contains(operation) else { return nil }
            let number = state.operations
            state.operations += 1
            guard number >= fault.at, number < fault.at + fault.count else { return nil }
            state.failures += 1
            return fault.code
        }
    }
}
