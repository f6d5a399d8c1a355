import Foundation
import HapaxModel

/// Starts programs by `posix_spawn`, with nothing inherited but what is passed.
enum Spawn {
    /// - Parameters:
    ///   - input: nil reads as empty.
    ///   - output: nil discards.
    ///   - environment: nil is this process's own.
    static func start(
        _ executable: String, _ arguments: [String], environment: [String: String]? = nil, input: Descriptor? = nil,
        output: Descriptor?, error: Descriptor?, inOwnGroup: Bool = false
    ) throws -> pid_t {
        #if canImport(Darwin)
        var actions: posix_spawn_file_actions_t?
        var attributes: posix_spawnattr_t?
        #else
        var actions = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        #endif
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (standard, descriptor) in [(STDIN_FILENO, input), (STDOUT_FILENO, output), (STDERR_FILENO, error)] {
            if let descriptor {
                posix_spawn_file_actions_adddup2(&actions, descriptor.number, standard)
            } else {
                posix_spawn_file_actions_addopen(&actions, standard, "/dev/null", O_RDWR, 0)
            }
        }
        #if os(Linux)
        // Whatever a library of this process has open is none of the child's; beside a whole suite that is a thousand descriptors. Closing
        // what is not open is no error (glibc).
        let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap { Int32($0) }.max() ?? 0
        // Some more: others are opened meanwhile.
        for number in 3..<open + 256 { posix_spawn_file_actions_addclose(&actions, number) }
        #endif
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // Threads of the test process may block or ignore signals; a child must meet them as a user's would.
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        for signal in [SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGCHLD] { sigaddset(&signals, signal) }
        posix_spawnattr_setsigdefault(&attributes, &signals)
        var flags = Int32(POSIX_SPAWN_SETSIGMASK) | Int32(POSIX_SPAWN_SETSIGDEF)
        if inOwnGroup {
            posix_spawnattr_setpgroup(&attributes, 0)
            flags |= Int32(POSIX_SPAWN_SETPGROUP)
        }
        posix_spawnattr_setflags(&attributes, Int16(flags))

        let environment = environment ?? ProcessInfo.processInfo.environment
        var argv: [UnsafeMutablePointer<CChar>?] = ([executable] + arguments).map { strdup($0) } + [nil]
        var envp: [UnsafeMutablePointer<CChar>?] = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for pointer in argv + envp { free(pointer) } }
        var pid: pid_t = 0
        let status = Descriptor.inheritance.withLock { _ in
            posix_spawn(&pid, executable, &actions, &attributes, &argv, &envp)
        }
        guard status == 0 else { throw Descriptor.Failure("posix_spawn \(URL(filePath: executable).lastPathComponent)", status) }
        return pid
    }
}
