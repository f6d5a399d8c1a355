import Foundation

/// Finds the programs of a PostgreSQL server, which distributions keep off the search path.
struct PostgresBinaries: Sendable {
    let directory: String
    /// The major version, such as 15.
    let version: Int

    struct NotFound: Error, CustomStringConvertible {
        let description =
            "no PostgreSQL server programs found: install the package `postgresql`, or name their directory by HAPAX_TEST_POSTGRES"
    }

    /// Those in the directory that `HAPAX_TEST_POSTGRES` names, and no others; without it those of the system.
    static func find() async throws -> PostgresBinaries {
        let named = ProcessInfo.processInfo.environment["HAPAX_TEST_POSTGRES"]
        let directories = if let named { [named] } else { await candidates() }
        for directory in directories where hasServer(directory) {
            let text = try await Command.run("\(directory)/postgres", ["--version"])
            // "postgres (PostgreSQL) 15.18 (Debian …)", "… 17beta1"
            let digits = text.split(separator: " ").first { $0.first?.isNumber == true }?.prefix { $0.isNumber }
            guard let digits, let version = Int(digits), version >= 14 else { continue }
            return PostgresBinaries(directory: directory, version: version)
        }
        throw NotFound()
    }

    private static func candidates() async -> [String] {
        var found: [String] = []
        let path = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").map(String.init)
        if let pgConfig = path.map({ "\($0)/pg_config" }).first(where: FileManager.default.isExecutableFile(atPath:)),
            let directory = try? await Command.run(pgConfig, ["--bindir"])
        {
            found.append(directory.trimmingCharacters(in: .whitespacesAndNewlines))
        }
        let versions = (try? FileManager.default.contentsOfDirectory(atPath: "/usr/lib/postgresql")) ?? []
        // By number: as text 9 would come before 15.
        found += versions.compactMap { Int($0) }.sorted(by: >).map { "/usr/lib/postgresql/\($0)/bin" }
        return found + path
    }

    private static func hasServer(_ directory: String) -> Bool {
        ["initdb", "pg_ctl", "postgres", "psql"].allSatisfy { FileManager.default.isExecutableFile(atPath: "\(directory)/\($0)") }
    }
}
