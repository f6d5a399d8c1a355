import Foundation
import GRDBSQLite
import HapaxModel
import HapaxSQLite

/// A layer under SQLite (https://www.sqlite.org/vfs.html) that passes everything on, and shows to whoever watches a directory what is done
/// with the files below it. Those that were open before are not shown.
package enum DiskLayer {
    package enum Operation: CaseIterable, Sendable {
        case read, write, sync, truncate, open
    }

    /// What has been done with a file.
    package enum Change: Sendable {
        case opened(path: String)
        case wrote([UInt8], offset: Int)
        case truncated(Int)
        case synced
    }

    package struct Watcher: Sendable {
        /// Returns what SQLite is told instead of its being done; nil to let it be done.
        package var refuses: @Sendable (Operation) -> Int32?
        /// Told of what was done, on the thread that did it.
        package var changed: (@Sendable (FileIdentity, Change) -> Void)?

        package init(
            refuses: @escaping @Sendable (Operation) -> Int32? = { _ in nil }, changed: (@Sendable (FileIdentity, Change) -> Void)? = nil
        ) {
            self.refuses = refuses
            self.changed = changed
        }
    }

    /// Of the files below a directory.
    package static func watch(_ directory: String, _ watcher: Watcher?) {
        installed
        state.withLock { $0.watchers[directory] = watcher }
    }

    private struct File: Sendable {
        var identity: FileIdentity?
        var watcher: Watcher
        // Constant, and SQLite's own.
        nonisolated(unsafe) var methods: UnsafePointer<sqlite3_io_methods>

        func changed(_ change: Change) {
            if let identity { watcher.changed?(identity, change) }
        }
    }

    private struct State: Sendable {
        var watchers: [String: Watcher] = [:]
        /// Open files by their address.
        var files: [UInt: File] = [:]
        /// Our methods for each kind of file, by the address of SQLite's own.
        var wrappers: [UInt: UInt] = [:]
    }

    private static let state = Locked(State())

    /// SQLite's own layer. Written once, before this one is used.
    nonisolated(unsafe) private static var below: UnsafeMutablePointer<sqlite3_vfs>?

    /// The default layer of the process, which goes on to the one that was default before.
    private static let installed: Void = {
        guard let standard = sqlite3_vfs_find(nil) else { return }
        below = standard
        let layer = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
        layer.initialize(to: standard.pointee)
        layer.pointee.zName = UnsafePointer(strdup("watched"))
        layer.pointee.pNext = nil
        layer.pointee.xOpen = { _, name, file, flags, outFlags in DiskLayer.open(name, file, flags, outFlags) }
        sqlite3_vfs_register(layer, 1)
    }()

    private static func open(
        _ name: UnsafePointer<CChar>?, _ file: UnsafeMutablePointer<sqlite3_file>?, _ flags: Int32, _ outFlags: UnsafeMutablePointer<Int32>?
    ) -> Int32 {
        guard let below, let file else { return SQLITE_CANTOPEN }
        let path = name.map { String(cString: $0) }
        let watcher = path.flatMap { path in state.withLock { state in state.watchers.first { path.hasPrefix($0.key) }?.value } }
        if let code = watcher?.refuses(.open) { return code == SQLITE_FULL ? SQLITE_FULL : SQLITE_CANTOPEN }
        let result = below.pointee.xOpen(below, name, file, flags, outFlags)
        guard result == SQLITE_OK, let watcher, let path, let methods = file.pointee.pMethods else { return result }
        let opened = File(identity: FileIdentity(path: path), watcher: watcher, methods: methods)
        state.withLock { $0.files[UInt(bitPattern: file)] = opened }
        file.pointee.pMethods = wrapper(methods)
        opened.changed(.opened(path: path))
        return result
    }

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
            DiskLayer.run(.read, file) { $0.pointee.xRead(file, buffer, count, offset) }
        }
        wrapper.pointee.xWrite = { file, buffer, count, offset in
            DiskLayer.run(.write, file, { .wrote([UInt8](UnsafeRawBufferPointer(start: buffer, count: Int(count))), offset: Int(offset)) })
            {
                $0.pointee.xWrite(file, buffer, count, offset)
            }
        }
        wrapper.pointee.xSync = { file, flags in
            DiskLayer.run(.sync, file, { .synced }) { $0.pointee.xSync(file, flags) }
        }
        wrapper.pointee.xTruncate = { file, size in
            DiskLayer.run(.truncate, file, { .truncated(Int(size)) }) { $0.pointee.xTruncate(file, size) }
        }
        wrapper.pointee.xClose = { file in
            DiskLayer.close(file)
        }
    }

    private static func close(_ file: UnsafeMutablePointer<sqlite3_file>?) -> Int32 {
        guard let file, let known = state.withLock({ $0.files.removeValue(forKey: UInt(bitPattern: file)) }) else { return SQLITE_IOERR }
        return known.methods.pointee.xClose(file)
    }

    private static func run(
        _ operation: Operation, _ file: UnsafeMutablePointer<sqlite3_file>?, _ change: () -> Change? = { nil },
        _ perform: (UnsafePointer<sqlite3_io_methods>) -> Int32
    ) -> Int32 {
        guard let file, let known = state.withLock({ $0.files[UInt(bitPattern: file)] }) else { return SQLITE_IOERR }
        if let code = known.watcher.refuses(operation) { return code }
        let result = perform(known.methods)
        if result == SQLITE_OK, known.watcher.changed != nil, let change = change() { known.changed(change) }
        return result
    }
}
