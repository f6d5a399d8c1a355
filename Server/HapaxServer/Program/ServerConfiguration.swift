import Foundation
import Logging

/// Everything that can be set about the server, read and checked.
package struct ServerConfiguration: Sendable {
    package var options = ServerOptions()
    package var store: Store
    package var writeKeys: [ProjectKey]
    package var readKeys: [ProjectKey]
    package var adminKey: String?
    package var timeZones: [ProjectZone]
    package var postgres = PostgresEventStore.Options()
    package var logLevel: Logger.Level
    package var logsJSON: Bool
    /// Variables that look like settings and are none: most likely misspelt.
    package var unknownVariables: [String]

    /// The projects that it names: a server makes them at its start.
    package var projects: Set<String> { Set((writeKeys + readKeys).map(\.project) + timeZones.map(\.project)) }

    package enum Store: Equatable, Sendable {
        case sqlite(path: String)
        case postgres(uri: String)
    }

    package struct ProjectKey: Equatable, Sendable {
        package var project: String
        package var key: String
    }

    package struct ProjectZone: Equatable, Sendable {
        package var project: String
        /// Of the time zone database.
        package var zone: String
    }

    package typealias Problem = SettingSources.Problem

    /// Reads flags, then the environment, then the file that one of them names; the first value counts. An unusable value is an error and is
    /// never replaced by a default.
    ///
    /// - Parameter flags: By the settings' names.
    /// - Throws: ``Problem``.
    package init(flags: [String: String], environment: [String: String]) throws {
        let path = flags[ServerSetting.config.name] ?? environment[ServerSetting.config.environmentName]
        let file = try path.map { try SettingSources.file($0) } ?? [:]
        let secrets = try SettingSources.secrets(environment)
        func value(_ setting: ServerSetting) -> String? {
            flags[setting.name] ?? secrets[setting.name] ?? environment[setting.environmentName] ?? file[setting.name]
                ?? setting.defaultText
        }
        func number(_ setting: ServerSetting, _ range: ClosedRange<Int>) throws -> Int {
            guard let value = value(setting).flatMap({ Int($0) }), range.contains(value) else {
                throw Problem(setting, "must be a number from \(range.lowerBound) to \(range.upperBound)")
            }
            return value
        }
        options.host = value(.host) ?? ""
        guard !options.host.isEmpty else { throw Problem(.host, "must be an address or a name") }
        options.port = try number(.port, 0...65_535)
        if value(.metricsPort) ?? "" != "" {
            options.metrics = (value(.metricsHost) ?? "", try number(.metricsPort, 0...65_535))
            guard options.metrics?.port != options.port || options.port == 0 else { throw Problem(.metricsPort, "must be another port") }
        }
        options.limits.connections = try number(.maximumConnections, 1...100_000)
        options.limits.heldBytes = try number(.maximumWaitingBytes, 33_554_432...17_179_869_184)
        options.limits.arrivingBytes = options.limits.heldBytes
        options.limits.multiplyDeadlines(by: try number(.deadlineFactor, 1...100))
        postgres.writers = try number(.postgresWriters, 1...16)
        func isOn(_ setting: ServerSetting) throws -> Bool {
            switch value(setting) {
            case nil, "", "false", "0": return false
            case "true", "1": return true
            case .some: throw Problem(setting, "must be true or false")
            }
        }
        postgres.unsafeAllowNonDurableStore = try isOn(.unsafeAllowNonDurableStore)
        // Empty means none, because docker-compose passes on a variable that is not set as an empty one.
        switch (value(.tlsCertificate) ?? "", value(.tlsKey) ?? "") {
        case ("", ""): break
        case (_, ""): throw Problem(.tlsKey, "must be set as well: a certificate is of no use without its key")
        case ("", _): throw Problem(.tlsCertificate, "must be set as well: a key is of no use without its certificate")
        case (let certificate, let key): options.certificate = CertificateFiles(certificate: certificate, key: key)
        }
        guard try isOn(.plain) || options.certificate != nil || Self.isLoopback(options.host) else {
            throw Problem(
                .host,
                """
                is reached by other machines, and whoever is on the way could read keys and events: set HAPAX_TLS_CERTIFICATE and \
                HAPAX_TLS_KEY, or HAPAX_PLAIN=true (--plain) if a proxy in front of it speaks TLS
                """)
        }
        guard let proxies = TrustedProxies(value(.trustedProxies) ?? "") else {
            throw Problem(.trustedProxies, "must be addresses and networks, such as 10.0.0.0/8, several separated by commas")
        }
        options.proxies = proxies
        guard let level = Logger.Level(rawValue: value(.logLevel) ?? "") else { throw Problem(.logLevel, "is not a log level") }
        logLevel = level
        guard let format = value(.logFormat), ["text", "json"].contains(format) else {
            throw Problem(.logFormat, "must be text or json")
        }
        logsJSON = format == "json"
        store = try Self.store(value(.store) ?? "")
        if let admin = value(.storeAdmin), !admin.isEmpty {
            guard case .postgres(let uri) = try? Self.store(admin), case .postgres = store else {
                throw Problem(.storeAdmin, "must be postgres://… and goes with a store of that kind")
            }
            postgres.admin = uri
        }
        writeKeys = try Self.projectKeys(value(.writeKeys) ?? "", .writeKeys)
        readKeys = try Self.projectKeys(value(.readKeys) ?? "", .readKeys)
        timeZones = try Self.entries(value(.timeZones) ?? "", .timeZones, "must be PROJECT=ZONE, several separated by commas").map {
            guard ReportZone($0.value) != nil else {
                throw Problem(.timeZones, "names a zone that the time zone database of this program does not hold: \($0.value)")
            }
            return ProjectZone(project: $0.project, zone: $0.value)
        }
        guard Set(timeZones.map(\.project)).count == timeZones.count else { throw Problem(.timeZones, "gives a project two zones") }
        unknownVariables = SettingSources.unknownVariables(environment)
        adminKey = value(.adminKey).map { $0.trimmingCharacters(in: .whitespacesAndNewlines) }.flatMap { $0.isEmpty ? nil : $0 }
        if let adminKey { try Self.checkCharacters(adminKey, .adminKey) }
        if writeKeys.contains(where: { $0.key == adminKey }) { throw Problem(.adminKey, "is a write key as well, which is in every app") }
        if readKeys.contains(where: { $0.key == adminKey }) {
            throw Problem(.adminKey, "is a read key as well; it would read every project")
        }
        if !Set(readKeys.map(\.key)).isDisjoint(with: writeKeys.map(\.key)) {
            throw Problem(.readKeys, "holds a write key, which is in every app")
        }
        if !Self.isLoopback(options.host) {
            for entry in writeKeys { try Self.checkSecret(entry.key, .writeKeys) }
            for entry in readKeys { try Self.checkSecret(entry.key, .readKeys) }
            if let adminKey { try Self.checkSecret(adminKey, .adminKey) }
        }
    }

    /// Refuses keys that others could guess off loopback: the README's public keys, the placeholder of `.env.example`, and short ones.
    private static func checkSecret(_ key: String, _ setting: ServerSetting) throws {
        let shortest = ServerLimits.shortestKeyBytes
        if [StaticKeys.demoWriteKey, StaticKeys.demoReadKey].contains(key) {
            throw Problem(setting, "holds the public key \(key), which works on a loopback address only")
        }
        if key.hasPrefix("replace-this") { throw Problem(setting, "still holds the placeholder of .env.example: make a key of your own") }
        if key.utf8.count < shortest {
            throw Problem(
                setting,
                "holds a key of fewer than \(shortest) bytes, which works on a loopback address only: openssl rand -hex 24 makes one")
        }
    }

    /// Refuses keys that a header cannot carry, or that were quoted by mistake: every sender would get 401 for ever.
    private static func checkCharacters(_ key: String, _ setting: ServerSetting) throws {
        guard key.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            throw Problem(setting, "holds a key with characters other than visible ASCII")
        }
        if AccessKey.isMistyped(key) { throw Problem(setting, "holds a mistyped key, or a part of one: its check sum does not fit") }
        if key.hasPrefix("\"") || key.hasPrefix("'") { throw Problem(setting, "holds a key in quotation marks: take them away") }
    }

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

    private static func projectKeys(_ text: String, _ setting: ServerSetting) throws -> [ProjectKey] {
        let keys = try entries(text, setting, "must be PROJECT=KEY, several separated by commas").map {
            try checkCharacters($0.value, setting)
            return ProjectKey(project: $0.project, key: $0.value)
        }
        guard Set(keys.map(\.key)).count == keys.count else { throw Problem(setting, "gives one key twice") }
        return keys
    }

    private static func entries(_ text: String, _ setting: ServerSetting, _ form: String) throws -> [(project: String, value: String)] {
        try text.split(omittingEmptySubsequences: true) { $0 == "," || $0.isNewline }.map { entry in
            let parts = entry.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let project = parts[0].trimmingCharacters(in: .whitespacesAndNewlines)
            let value = parts.count == 2 ? parts[1].trimmingCharacters(in: .whitespacesAndNewlines) : ""
            // Docker keeps quotation marks around a value as part of it: every sender would get 401 for ever.
            if let first = project.first, first == "\"" || first == "'" {
                throw Problem(setting, "begins with a quotation mark: take it away")
            }
            guard !project.isEmpty, project.utf8.count <= 64, !value.isEmpty else { throw Problem(setting, form) }
            return (project, value)
        }
    }
}
