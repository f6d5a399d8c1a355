import Foundation
import HapaxModel

/// A PostgreSQL cluster that lives as long as a test: its own data, its own port on 127.0.0.1, and PostgreSQL's own defaults, which are durable.
///
/// Works as an ordinary user and as root, then through the user `postgres`, since the server refuses to run as root. What is left when the
/// test process ends, by whatever cause, is stopped and removed by ``LastWill``.
package final class PostgresCluster: Sendable {
    package enum StopMode: String, Sendable {
        /// Ends connections, writes a checkpoint.
        case fast
        /// Ends at once, without a checkpoint: the next start recovers from the write-ahead log.
        case immediate
    }

    package let port: Int
    /// The major version, such as 15.
    package var version: Int { binaries.version }
    /// Where the programs of its version are.
    package var programs: String { binaries.directory }
    private let binaries: PostgresBinaries
    private let account: PostgresAccount
    /// Its own, which its account may write to; the data lie in `data`.
    package let directory: String
    private let password: String
    private let settings: [String]
    private let databases = Locked(0)
    private let will: LastWill.Entry

    private static let sharedCluster = Task { try await PostgresCluster() }

    /// The cluster that the tests of this process share, started by the first to ask. A test that stops a server starts its own instead.
    package static var shared: PostgresCluster {
        get async throws { try await sharedCluster.value }
    }

    /// Makes a cluster and starts it; it accepts connections on return.
    ///
    /// - Parameter settings: Beside its own, as `name=value`.
    package init(settings: [String] = []) async throws {
        self.settings = settings
        binaries = try await PostgresBinaries.find()
        account = try PostgresAccount.current()
        directory = try await account.makeDirectory()
        port = try LoopbackPort.unused()
        password = UUID().uuidString
        will = try LastWill.shared.add(
            "\(account.shellPrefix)\(LastWill.quoted("\(binaries.directory)/pg_ctl")) -D \(LastWill.quoted("\(directory)/data")) "
                + "-m immediate -w stop; rm -rf \(LastWill.quoted(directory))")

        let passwordFile = "\(directory)/password"
        try account.write("\(password)\n", to: passwordFile)
        try await account.run(
            "\(binaries.directory)/initdb",
            [
                "-D", "\(directory)/data", "-U", "hapax", "--auth=scram-sha-256", "--pwfile=\(passwordFile)", "--encoding=UTF8",
                "--no-locale", "--no-sync",
            ])
        try await start()
    }

    deinit { LastWill.shared.execute(will) }

    /// Starts the stopped server on the same port; it accepts connections on return.
    package func start() async throws {
        let options =
            [
                "listen_addresses=127.0.0.1", "port=\(port)", "unix_socket_directories=", "max_connections=300",
                "shared_buffers=64MB", "timezone=UTC",
            ] + settings
        // The port answers only when recovery is done: -w waits for that.
        do {
            try await account.run(
                "\(binaries.directory)/pg_ctl",
                [
                    "-D", "\(directory)/data", "-l", "\(directory)/log", "-w", "-t", "60", "-o",
                    options.map { "-c \(LastWill.quoted($0))" }.joined(separator: " "), "start",
                ])
        } catch {
            let log = (try? String(contentsOfFile: "\(directory)/log", encoding: .utf8)) ?? "no log"
            throw Command.Failed(description: "PostgreSQL did not start: \(error)\n\(log.suffix(4_000))")
        }
    }

    /// Stops the server; it is gone on return.
    package func stop(mode: StopMode) async throws {
        try await account.run(
            "\(binaries.directory)/pg_ctl", ["-D", "\(directory)/data", "-m", mode.rawValue, "-w", "-t", "60", "stop"])
    }

    /// Runs a script of a shell under the cluster's account, with PostgreSQL's programs and ours.
    package func run(_ script: String, environment: [String: String] = [:]) async throws {
        let paths = [binaries.directory, PackageLayout.productsDirectory.path, ProcessInfo.processInfo.environment["PATH"] ?? ""].joined(
            separator: ":")
        let variables = environment.merging(["PATH": paths, "PGDATA": "\(directory)/data"]) { $1 }
        try await account.run("/usr/bin/env", variables.map { "\($0.key)=\($0.value)" }.sorted() + ["/bin/sh", "-ec", script])
    }

    /// Makes an empty database.
    ///
    /// - Returns: Its URI, for libpq.
    package func makeDatabase() async throws -> String {
        let number = databases.withLock { number in
            number += 1
            return number
        }
        _ = try await query("CREATE DATABASE test\(number) TEMPLATE template0", database: uri("postgres"))
        return uri("test\(number)")
    }

    /// Makes an empty database whose tables lie below a directory, which may be on another disk; the write-ahead log does not.
    package func makeDatabase(in directory: String) async throws -> String {
        let place = directory + "/tables"
        try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
        try account.own(directory)
        try account.own(place)
        let name = "disk_\(UUID().uuidString.prefix(8).lowercased())"
        _ = try await query("CREATE TABLESPACE \(name) LOCATION '\(place)'", database: uri("postgres"))
        _ = try await query("CREATE DATABASE \(name) TEMPLATE template0 TABLESPACE \(name)", database: uri("postgres"))
        return uri(name)
    }

    /// A database of the cluster's own, for what cannot be said in the one it is about.
    package var maintenance: String { uri("postgres") }

    private func uri(_ database: String) -> String {
        "postgres://hapax:\(password)@127.0.0.1:\(port)/\(database)"
    }

    /// The first process of the running server; the others are its children.
    package var processIdentifier: Int32? {
        let file = try? String(contentsOfFile: "\(directory)/data/postmaster.pid", encoding: .utf8)
        return file?.split(separator: "\n").first.flatMap { Int32($0) }
    }

    /// A database as SQL that any cluster and any user can run.
    package func dump(_ database: String) async throws -> String {
        let text = try await Command.run(
            "\(binaries.directory)/pg_dump", ["--no-owner", "--no-privileges", "--inserts", "--dbname", database])
        // What pg_dump sets for its own session, or psql alone understands, is no part of the database.
        let lines = text.split(separator: "\n", omittingEmptySubsequences: true).filter { line in
            !["--", "SET ", "SELECT pg_catalog.set_config", "\\"].contains { line.hasPrefix($0) }
        }
        return lines.joined(separator: "\n") + "\n"
    }

    /// Runs SQL through psql, apart from the code under test.
    ///
    /// - Parameter database: The URI that ``makeDatabase()`` returned.
    /// - Returns: Rows of text; NULL reads as empty.
    package func query(_ sql: String, database: String) async throws -> [[String]] {
        let output = try await Command.run(
            "\(binaries.directory)/psql",
            [
                "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--field-separator", "\u{1F}", "--record-separator", "\u{1E}",
                "--set", "ON_ERROR_STOP=1", "--dbname", database, "--command", sql,
            ])
        guard !output.isEmpty else { return [] }
        // psql ends its output with a line's end, which is none of the last field.
        let records = output.hasSuffix("\n") ? output.dropLast() : output[...]
        return records.split(separator: "\u{1E}", omittingEmptySubsequences: false)
            .map { $0.split(separator: "\u{1F}", omittingEmptySubsequences: false).map(String.init) }
    }
}
