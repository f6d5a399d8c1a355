import Configuration
import Foundation
import Logging
import SystemPackage

/// Everything that can be set about the server, read and checked.
@available(macOS 15, *)
package struct ServerConfiguration: Sendable {
    package var options = IngestApplication.Options()
    package var store: Store
    package var writeKeys: [WriteKey]
    package var postgres = PostgresEventStore.Options()
    package var logLevel: Logger.Level

    package enum Store: Equatable, Sendable {
        case sqlite(path: String)
        case postgres(uri: String)
    }

    package struct WriteKey: Equatable, Sendable {
        package var project: String
        package var key: String
    }

    /// A setting that cannot be used. The description never holds a key or a connection string.
    package struct Problem: Error, CustomStringConvertible {
        package var description: String

        init(_ setting: ServerSetting, _ text: String) {
            description = "\(setting.environmentName) (--\(setting.name)) \(text)"
        }

        init(_ text: String) { description = text }
    }

    /// Reads flags, then the environment, then the file that one of them names.
    ///
    /// - Parameter arguments: Without the program's name.
    /// - Throws: ``Problem``.
    package init(arguments: [String], environment: [String: String]) async throws {
        try Self.checkFlags(arguments)
        let flags = CommandLineArgumentsProvider(arguments: ["hapax-server"] + arguments)
        let variables = EnvironmentVariablesProvider(environmentVariables: environment).prefixKeys(with: "hapax")
        var reader = ConfigReader(providers: [flags, variables])
        if let path = reader.string(forKey: ConfigKey(ServerSetting.config.name)) {
            do {
                let file = try await FileProvider<JSONSnapshot>(filePath: FilePath(path))
                reader = ConfigReader(providers: [flags, variables, file])
            } catch {
                throw Problem(.config, "names a file that cannot be read as a JSON object")
            }
        }
        try self.init(reader)
    }

    private init(_ reader: ConfigReader) throws {
        func text(_ setting: ServerSetting) -> String? { reader.string(forKey: ConfigKey(setting.name)) ?? setting.defaultText }
        func number(_ setting: ServerSetting, _ range: ClosedRange<Int>) throws -> Int {
            let key = ConfigKey(setting.name)
            // A file holds numbers as numbers, which are no strings to the reader.
            let text = reader.string(forKey: key) ?? reader.int(forKey: key).map(String.init) ?? setting.defaultText
            let value = text.flatMap { Int($0) }
            guard let value, range.contains(value) else {
                throw Problem(setting, "must be a number from \(range.lowerBound) to \(range.upperBound)")
            }
            return value
        }
        options.host = text(.host) ?? "127.0.0.1"
        options.port = try number(.port, 0...65_535)
        options.maximumConnections = try number(.maximumConnections, 1...100_000)
        options.maximumWaitingBytes = try number(.maximumWaitingBytes, 1_048_576...17_179_869_184)
        postgres.writers = try number(.postgresWriters, 1...16)
        postgres.unsafeAllowNonDurableStore =
            reader.bool(forKey: ConfigKey(ServerSetting.unsafeAllowNonDurableStore.name)) ?? false
        guard let level = Logger.Level(rawValue: text(.logLevel) ?? "") else { throw Problem(.logLevel, "is not a log level") }
        logLevel = level
        store = try Self.store(text(.store) ?? "")
        writeKeys = try Self.writeKeys(text(.writeKeys) ?? "")
        if writeKeys.contains(where: { $0.key == Self.publicKey }), !Self.isLoopback(options.host) {
            throw Problem(.writeKeys, "holds the public key \(Self.publicKey), which works on a loopback address only")
        }
    }

    /// The key that `make run` and the README use.
    private static let publicKey = "demo"

    private static func isLoopback(_ host: String) -> Bool {
        if host == "localhost" || host == "::1" { return true }
        let numbers = host.split(separator: ".", omittingEmptySubsequences: false).map { UInt8($0) }
        return numbers.count == 4 && numbers[0] == 127 && !numbers.contains(nil)
    }

    private static func store(_ text: String) throws -> Store {
        if text.hasPrefix("sqlite:"), text.count > "sqlite:".count {
            return .sqlite(path: String(text.dropFirst("sqlite:".count)))
        }
        if text.hasPrefix("postgres://") || text.hasPrefix("postgresql://") { return .postgres(uri: text) }
        throw Problem(.store, "must be sqlite:PATH or postgres://…")
    }

    private static func writeKeys(_ text: String) throws -> [WriteKey] {
        let entries = text.split(separator: ",", omittingEmptySubsequences: true)
        guard !entries.isEmpty else { throw Problem(.writeKeys, "is missing: PROJECT=KEY, several separated by commas") }
        let keys = try entries.map { entry in
            let parts = entry.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let project = parts[0].trimmingCharacters(in: .whitespaces)
            let key = parts.count == 2 ? parts[1].trimmingCharacters(in: .whitespaces) : ""
            guard !project.isEmpty, project.utf8.count <= 64, !key.isEmpty else {
                throw Problem(.writeKeys, "must be PROJECT=KEY, several separated by commas")
            }
            return WriteKey(project: project, key: key)
        }
        guard Set(keys.map(\.key)).count == keys.count else { throw Problem(.writeKeys, "gives one key twice") }
        return keys
    }

    /// The provider ignores flags that nobody asks for; a misspelt one must not be ignored.
    private static func checkFlags(_ arguments: [String]) throws {
        var position = 0
        while position < arguments.count {
            let argument = arguments[position]
            guard argument.hasPrefix("--") else { throw Problem("unexpected argument: \(argument)") }
            let name = String(argument.dropFirst(2).prefix { $0 != "=" })
            guard let setting = ServerSetting.all.first(where: { $0.name == name }) else {
                throw Problem("unknown flag: --\(name); see --help")
            }
            position += 1
            guard setting.placeholder != nil, !argument.contains("=") else { continue }
            guard position < arguments.count, !arguments[position].hasPrefix("--") else {
                throw Problem("--\(name) needs a value")
            }
            position += 1
        }
    }
}
