import Foundation

/// Lets programs of this package believe that their disk has no hard links, as FAT has none: the calls are answered before the system sees them.
package struct FileSystemWithoutLinks: Sendable {
    private let directory = TemporaryDirectory("without-links")
    /// For the programs.
    package let environment: [String: String]

    /// Whether there is a compiler to make the calls with, and a loader that takes them.
    package static var isPossible: Bool {
        #if os(Linux)
        FileManager.default.isExecutableFile(atPath: compiler)
        #else
        false
        #endif
    }

    private static let compiler = "/usr/bin/cc"

    /// - Parameter renames: Whether a file can be renamed only to a name that is free.
    package init(renames: Bool) async throws {
        let source = """
            #include <errno.h>
            int link(const char *from, const char *to) { errno = EPERM; return -1; }
            \(renames ? "" : "int renameat2(int a, const char *b, int c, const char *d, unsigned e) { errno = EINVAL; return -1; }")
            """
        try Data(source.utf8).write(to: URL(filePath: directory.path("calls.c")))
        let library = directory.path("calls.so")
        try await Command.run(Self.compiler, ["-shared", "-fPIC", "-o", library, directory.path("calls.c")])
        environment = ["LD_PRELOAD": library]
    }
}
