import Foundation
import GRDBSQLite
import HapaxModel

/// A disk that fails when it is told to: a layer under SQLite (https://www.sqlite.org/vfs.html) that passes everything on, but for files
/// below one directory, where the operation of a given number returns an error.
final class FaultyDisk: Sendable {
    enum Operation: CaseIterable, Sendable {
        case read, write, sync, truncate, open
    }

    struct Fault: Sendable {
        /// Which of all operations on the directory's files fails, from 0, and how many behind it.
        var at: Int
        var count = 1
        /// What SQLite is told, if the operation is one of these.
        var code: Int32
        var operations: Set<Operation> = Set(Operation.allCases)
    }

    private let prefix: String

    init(_ directory: String) {
        prefix = directory
        Layer.install()
        Layer.state.withLock { $0.disks[prefix] = Layer.Disk() }
    }

    deinit { Layer.state.withLock { $0.disks[prefix] = nil } }

    /// From now on, counted from 0.
    func fail(_ fault: Fault?) {
        Layer.state.withLock { $0.disks[prefix] = Layer.Disk(fault: fault) }
    }

    /// Operations that failed.
    var failures: Int { Layer.state.withLock { $0.disks[prefix]?.failures ?? 0 } }

    /// The default layer of the process, which goes on to the one that was default before.
    private enum Layer {
        struct Disk: Sendable {
            var fault: Fault?
            var operations = 0
            var failures = 0
        }

        struct File: Sendable {
            var disk: String
            // Constant, and SQLite's own.
            nonisolated(unsafe) var methods: UnsafePointer<sqlite3_io_methods>
        }

        struct State: Sendable {
            var disks: [String: Disk] = [:]
            /// Open files by their address.
            var files: [UInt: File] = [:]
            /// Our methods for each kind of file, by the address of SQLite's own.
            var wrappers: [UInt: UInt] = [:]
        }

        static let state = Locked(State())

        /// SQLite's own layer. Written once, before this one is used.
        nonisolated(unsafe) static var below: UnsafeMutablePointer<sqlite3_vfs>?

        private static let installed: Void = {
            guard let standard = sqlite3_vfs_find(nil) else { return }
            below = standard
            let layer = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
            layer.initialize(to: standard.pointee)
            layer.pointee.zName = UnsafePointer(strdup("faulty"))
            layer.pointee.pNext = nil
            layer.pointee.xOpen = { _, name, file, flags, outFlags in
                guard let below = Layer.below, let file else { return SQLITE_CANTOPEN }
                let disk = name.map { String(cString: $0) }.flatMap { path in
                    Layer.state.withLock { state in state.disks.keys.first { path.hasPrefix($0) } }
                }
                if let disk, let code = Layer.failure(of: .open, on: disk) { return code == SQLITE_FULL ? SQLITE_FULL : SQLITE_CANTOPEN }
                let result = below.pointee.xOpen(below, name, file, flags, outFlags)
                guard result == SQLITE_OK, let disk, let methods = file.pointee.pMethods else { return result }
                Layer.state.withLock { $0.files[UInt(bitPattern: file)] = File(disk: disk, methods: methods) }
                file.pointee.pMethods = Layer.wrapper(methods)
                return result
            }
            sqlite3_vfs_register(layer, 1)
        }()

        static func install() { installed }

        private static func wrapper(_ methods: UnsafePointer<sqlite3_io_methods>) -> UnsafePointer<sqlite3_io_methods>? {
            let address = state.withLock { state in
                let key = UInt(bitPattern: methods)
                if let known = state.wrappers[key] { return known }
                let wrapper = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
                wrapper.initialize(to: methods.pointee)
                wrap(wrapper)
                state.wrappers[key] = UInt(bitPattern: wrapper)
                return UInt(bitPattern: wrapper)
            }
            return UnsafePointer(bitPattern: address)
        }

        private static func wrap(_ wrapper: UnsafeMutablePointer<sqlite3_io_methods>) {
            wrapper.pointee.xRead = { file, buffer, count, offset in
                Layer.failure(of: .read, file) ?? Layer.below(file)?.pointee.xRead(file, buffer, count, offset) ?? SQLITE_IOERR
            }
            wrapper.pointee.xWrite = { file, buffer, count, offset in
                Layer.failure(of: .write, file) ?? Layer.below(file)?.pointee.xWrite(file, buffer, count, offset) ?? SQLITE_IOERR
            }
            wrapper.pointee.xSync = { file, flags in
                Layer.failure(of: .sync, file) ?? Layer.below(file)?.pointee.xSync(file, flags) ?? SQLITE_IOERR
            }
            wrapper.pointee.xTruncate = { file, size in
                Layer.failure(of: .truncate, file) ?? Layer.below(file)?.pointee.xTruncate(file, size) ?? SQLITE_IOERR
            }
            wrapper.pointee.xClose = { file in
                let methods = Layer.below(file)
                if let file { Layer.state.withLock { $0.files[UInt(bitPattern: file)] = nil } }
                return methods?.pointee.xClose(file) ?? SQLITE_IOERR
            }
        }

        private static func below(_ file: UnsafeMutablePointer<sqlite3_file>?) -> UnsafePointer<sqlite3_io_methods>? {
            file.flatMap { file in state.withLock { $0.files[UInt(bitPattern: file)]?.methods } }
        }

        private static func failure(of operation: Operation, _ file: UnsafeMutablePointer<sqlite3_file>?) -> Int32? {
            guard let file, let disk = state.withLock({ $0.files[UInt(bitPattern: file)]?.disk }) else { return nil }
            return failure(of: operation, on: disk)
        }

        static func failure(of operation: Operation, on disk: String) -> Int32? {
            state.withLock { state in
                guard let fault = state.disks[disk]?.fault, fault.operations.contains(operation) else { return nil }
                let number = state.disks[disk]?.operations ?? 0
                state.disks[disk]?.operations += 1
                guard number >= fault.at, number < fault.at + fault.count else { return nil }
                state.disks[disk]?.failures += 1
                return fault.code
            }
        }
    }
}
