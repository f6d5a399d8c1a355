import ArgumentParser
import Dispatch
import Foundation
import HapaxModel
import Logging
import NIOCore
import ServiceLifecycle
import UnixSignals

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The ingest server as a program.
@available(macOS 15, *)
public enum HapaxServer {
    /// Runs the server as its arguments and its environment say, until SIGTERM or SIGINT.
    ///
    /// When it accepts connections, it prints `listening on http://HOST:PORT` (or `https:`) and then the page's address to standard output, and with the
    /// public keys a command that sends an event. Logs go to standard error.
    ///
    /// - Parameter arguments: Without the program's name.
    /// - Returns: The exit code: 0 stopped, 1 failed, 64 wrong settings.
    public static func main(arguments: [String], environment: [String: String]) async -> Int32 {
        if let first = arguments.first, first.hasPrefix("-"), arguments.contains(where: { ["--help", "-h"].contains($0) }) {
            // The help of `serve`, because it lists the settings.
            print(ServerCommand.helpMessage(for: ServeCommand.self))
            return 0
        }
        let flags: [String: String]
        do {
            let command = try ServerCommand.parseAsRoot(arguments)
            if let command = command as? any StoreCommand { return await run(command, environment) }
            if let command = command as? BackupCommand { return await run(command, environment) }
            if let command = command as? CheckCommand {
                return await command.run(environment, now: Int64(Date().timeIntervalSince1970 * 1_000))
            }
            guard let serve = command as? ServeCommand else {
                // `help`, or a command that has others: its run throws what is to be printed.
                var other = command
                try other.run()
                throw CleanExit.helpRequest()
            }
            flags = serve.settings.flags
        } catch {
            // ArgumentParser throws help and version, too, as errors with the exit code 0.
            let code = ServerCommand.exitCode(for: error)
            if code.isSuccess { print(ServerCommand.fullMessage(for: error)) } else { complain(ServerCommand.fullMessage(for: error)) }
            return code.rawValue
        }
        do {
            let configuration = try ServerConfiguration(flags: flags, environment: environment)
            try await run(configuration)
            return 0
        } catch let problem as ServerConfiguration.Problem {
            complain("\(problem)")
            return 64
        } catch let problem as Certificate.Problem {
            complain("\(problem) (HAPAX_TLS_CERTIFICATE, HAPAX_TLS_KEY)")
            return 64
        } catch let error as StoreError {
            complain("\(error)")
            return 1
        } catch let problem as CannotListen {
            complain("\(problem)")
            return 1
        } catch {
            complain("the server failed: \(error)")
            return 1
        }
    }

    private static func run(_ configuration: ServerConfiguration) async throws {
        let isJSON = configuration.logsJSON
        var logger = Logger(label: "hapax-server") { isJSON ? JSONLog() as any LogHandler : StreamLogHandler.standardError(label: $0) }
        logger.logLevel = configuration.logLevel
        for name in configuration.unknownVariables {
            logger.warning("A variable that looks like a setting is none; see --help", metadata: ["variable": "\(name)"])
        }
        EarlyStop.install()
        let currentTime: @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970 * 1_000) }
        let store = try await open(configuration, currentTime, logger)
        let projects = try await projects(configuration, store)
        let keys = keys(configuration, projects)
        var zones: [Int32: String] = [:]
        for entry in configuration.timeZones { zones[projects[entry.project] ?? 0] = entry.zone }
        if case let (used, newer?) = ReportZone.databaseVersion(), !zones.isEmpty {
            logger.warning(
                "The system knows newer rules for time zones than this program, whose own count",
                metadata: ["tzdata.used": "\(used)", "tzdata.system": "\(newer)"])
        }
        let host = configuration.options.host
        var options = configuration.options
        let descriptors = Descriptors.raise(to: options.limits.connections + ServerLimits.reservedDescriptors)
        if descriptors < options.limits.connections + ServerLimits.reservedDescriptors {
            options.limits.connections = max(1, descriptors - ServerLimits.reservedDescriptors)
            logger.warning(
                "The system allows too few open files for maximum-connections; fewer are taken (ulimit -n)",
                metadata: ["connections": "\(options.limits.connections)"])
        }
        let application = IngestApplication(
            store: store, keys: keys, zones: zones, options: options, currentTime: currentTime, logger: logger,
            onListening: { port in
                let address = "\(configuration.options.certificate == nil ? "http" : "https")://\(Self.authority(host, port))"
                print("listening on \(address)")
                // Only a key that is public anyway may be printed as part of an address.
                let hasDemo = configuration.readKeys.contains { $0.key == StaticKeys.demoReadKey }
                print("see what arrives: \(address)/\(hasDemo ? "#key=\(StaticKeys.demoReadKey)" : "")")
                if hasDemo, configuration.writeKeys.contains(where: { $0.key == StaticKeys.demoWriteKey }) {
                    print("send an event, in another terminal:")
                    print(NextCommand.text(program: CommandLine.arguments.first ?? "", address: address))
                }
                fflush(nil)
            },
            onMetricsListening: { port in
                print("metrics on http://\(Self.authority(configuration.options.metrics?.host ?? "", port))/metrics")
                fflush(nil)
            })
        let group = ServiceGroup(
            configuration: ServiceGroupConfiguration(
                services: [application], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
        let hardStop = HardStop.install()
        defer { for source in hardStop { source.cancel() } }
        do { try await group.run() } catch let error as IOError {
            throw CannotListen(error, options: options) ?? error
        }
    }

    private static func authority(_ host: String, _ port: Int) -> String { "\(host.contains(":") ? "[\(host)]" : host):\(port)" }

    /// The number of each project that a setting names.
    private static func projects(
        _ configuration: ServerConfiguration, _ store: any EventStore
    ) async throws(StoreError) -> [String: Int32] {
        var projects: [String: Int32] = [:]
        for name in configuration.projects {
            projects[name] = try await store.projectID(named: name)
        }
        return projects
    }

    private static func keys(_ configuration: ServerConfiguration, _ projects: [String: Int32]) -> StaticKeys {
        func holders(_ keys: [ServerConfiguration.ProjectKey]) -> [String: Int32] {
            keys.reduce(into: [:]) { $0[$1.key] = projects[$1.project] }
        }
        return StaticKeys(
            writers: holders(configuration.writeKeys), readers: holders(configuration.readKeys), admin: configuration.adminKey,
            projects: projects)
    }

    private static func open(
        _ configuration: ServerConfiguration, _ currentTime: @escaping @Sendable () -> Int64, _ logger: Logger
    ) async throws(StoreError) -> any EventStore {
        switch configuration.store {
        case .sqlite(let path): try SQLiteEventStore(path: path, currentTime: currentTime)
        case .postgres(let uri):
            try await PostgresEventStore(uri: uri, options: configuration.postgres, logger: logger)
        }
    }

    /// What a command works with, by the settings of its program.
    private static func admin(
        _ configuration: ServerConfiguration, _ database: any SQLStore, _ store: (any EventStore)?, now: Int64
    ) -> Admin {
        // In a container there may be none of that number.
        let user = NSUserName().isEmpty ? "uid \(getuid())" : NSUserName()
        let keys = (configuration.writeKeys + configuration.readKeys).map(\.key) + [configuration.adminKey].compactMap { $0 }
        return Admin(
            database: database, store: store,
            settings: Admin.Settings(
                projects: configuration.projects, zones: Set(configuration.timeZones.map(\.project)), keys: Set(keys.map { KeyDigest($0) })),
            now: now, caller: AdminCaller(name: "\(user) on \(ProcessInfo.processInfo.hostName)"))
    }

    /// Runs a command on the store.
    private static func run(_ command: any StoreCommand, _ environment: [String: String]) async -> Int32 {
        do {
            let configuration = try ServerConfiguration(flags: command.settings.flags, environment: environment)
            let logger = Logger(label: "hapax-server", factory: { StreamLogHandler.standardError(label: $0) })
            let currentTime: @Sendable () -> Int64 = { Int64(Date().timeIntervalSince1970 * 1_000) }
            if !command.creates, case .sqlite(let path) = configuration.store, !FileManager.default.fileExists(atPath: path) {
                complain("there is no store at \(path)")
                return 1
            }
            if case .sqlite(let path) = configuration.store, !FileManager.default.fileExists(atPath: path) { note("A new store: \(path)") }
            let output: CommandOutput
            do {
                let store = try await open(configuration, currentTime, logger)
                let result: Result<CommandOutput, any Error>
                let access = CommandStore(admin: admin(configuration, store.sql, store, now: currentTime()), note: note)
                do { result = .success(try await command.run(on: access)) } catch {
                    result = .failure(error)
                }
                await store.close()
                output = try result.get()
            } catch StoreError.inUse(let path) {
                guard !command.changes else {
                    complain(
                        "a server has \(path) open: ask it over HTTP with an admin key (docs/operations.md), or stop it first"
                    )
                    return 1
                }
                let reader = try SQLiteReader(path: path)
                let database = SQLiteSQLStore(reader: reader)
                output = try await command.run(on: CommandStore(admin: admin(configuration, database, nil, now: currentTime()), note: note))
                await reader.close()
            }
            if !output.text.isEmpty { print(output.text) }
            // A key that nobody has seen is of no use, and nobody must take it for handed over.
            guard fflush(nil) == 0 else {
                complain("standard output cannot be written to; hapax-server keys lists what was made: revoke a key that nobody has seen")
                return 74
            }
            if let text = output.note { note(text) }
            return 0
        } catch let problem as ServerConfiguration.Problem {
            complain("\(problem)")
            return 64
        } catch let problem as Registry.Problem {
            complain(problem.text)
            return 1
        } catch {
            complain("\(error)")
            return 1
        }
    }

    private static func run(_ command: BackupCommand, _ environment: [String: String]) async -> Int32 {
        do {
            let configuration = try ServerConfiguration(flags: command.settings.flags, environment: environment)
            note(try await command.run(configuration, note: note))
            return 0
        } catch let problem as ServerConfiguration.Problem {
            complain("\(problem)")
            return 64
        } catch {
            complain("\(error)")
            return 1
        }
    }

    @Sendable private static func note(_ text: String) {
        FileHandle.standardError.write(Data("\(text)\n".utf8))
    }

    private static func complain(_ text: String) {
        FileHandle.standardError.write(Data("hapax-server: \(text)\n".utf8))
    }
}

/// Lets SIGTERM and SIGINT end the process while it is still opening its store: as process 1 of a container it would ignore them, since the
/// system's default does not apply there. The service group handles both signals once it runs.
private enum EarlyStop {
    static func install() {
        for number in [SIGTERM, SIGINT] { signal(number) { _exit(128 + $0) } }
        // Closing a terminal or rotating logs can send SIGHUP, which must not stop the server.
        signal(SIGHUP, SIG_IGN)
    }
}

/// Ends the process when stopping takes too long (I17), because a request never ends or the database never answers. Senders that get no answer
/// send their events again.
private enum HardStop {
    /// A queue of its own: a flood of requests can occupy the threads of tasks and of global queues.
    private static let queue = DispatchQueue(label: "hapax.stop")

    /// - Returns: The sources, which must live as long as the server.
    static func install() -> [any DispatchSourceSignal] {
        [SIGTERM, SIGINT].map { number in
            let source = DispatchSource.makeSignalSource(signal: number, queue: queue)
            source.setEventHandler {
                // Exit code 0, because the stop is still orderly: every event that was reported as stored is stored.
                queue.asyncAfter(deadline: .now() + ServerLimits.hardStop / .seconds(1)) { _exit(0) }
            }
            source.resume()
            return source
        }
    }
}
