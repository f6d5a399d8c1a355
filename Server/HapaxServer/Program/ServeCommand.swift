import ArgumentParser
import HapaxModel

/// The command line of `hapax-server`.
struct ServerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "hapax-server", abstract: "Takes events over HTTP, stores each one once, and shows them.",
        version: HapaxVersion.current,
        subcommands: [
            ServeCommand.self, ProjectsCommand.self, KeysCommand.self, RetentionCommand.self, EraseCommand.self, AcceptLossesCommand.self,
            AuditCommand.self, BackupCommand.self, CheckCommand.self, ClockCommand.self,
        ],
        defaultSubcommand: ServeCommand.self)
}

/// Reads the flags; ``HapaxServer`` does the rest.
struct ServeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve", abstract: "The default command: takes events until SIGTERM or SIGINT.",
        discussion: """
            Each setting can be a flag, an environment variable, or a key of the JSON file named by --config; the first of these wins. \
            Events go to POST /v1/events; a page at / shows what arrives, and GET /v1/events and others answer with it (docs/reading.md); \
            GET /health/live, /health/ready and /metrics tell how it is. \
            It stops within 10 seconds. Exit codes: 0 stopped, 1 failed, 64 wrong settings. \
            Other commands, each with its --help: projects, keys, retention, erase, accept-losses, audit, backup, check, clock.
            """)

    @OptionGroup var settings: ServerFlags
}

/// A flag for each setting.
struct ServerFlags: ParsableArguments {
    @Option(help: .setting(.host)) var host: String?
    @Option(help: .setting(.port)) var port: String?
    @Option(help: .setting(.tlsCertificate)) var tlsCertificate: String?
    @Option(help: .setting(.tlsKey)) var tlsKey: String?
    @Flag(help: .setting(.plain)) var plain = false
    @Option(help: .setting(.trustedProxies)) var trustedProxies: String?
    @Option(help: .setting(.metricsPort)) var metricsPort: String?
    @Option(help: .setting(.metricsHost)) var metricsHost: String?
    @Option(help: .setting(.store)) var store: String?
    @Option(help: .setting(.storeAdmin)) var storeAdmin: String?
    @Option(help: .setting(.writeKeys)) var writeKeys: String?
    @Option(help: .setting(.readKeys)) var readKeys: String?
    @Option(help: .setting(.adminKey)) var adminKey: String?
    @Option(help: .setting(.timeZones)) var timeZones: String?
    @Option(help: .setting(.postgresWriters)) var postgresWriters: String?
    @Option(help: .setting(.maximumConnections)) var maximumConnections: String?
    @Option(help: .setting(.maximumWaitingBytes)) var maximumWaitingBytes: String?
    @Option(help: .setting(.deadlineFactor)) var deadlineFactor: String?
    @Option(help: .setting(.logLevel)) var logLevel: String?
    @Option(help: .setting(.logFormat)) var logFormat: String?
    @Option(help: .setting(.config)) var config: String?
    @Flag(help: .setting(.unsafeAllowNonDurableStore)) var unsafeAllowNonDurableStore = false

    /// The flags that were given, by their settings' names.
    var flags: [String: String] {
        let given: [(ServerSetting, String?)] = [
            (.host, host), (.port, port), (.tlsCertificate, tlsCertificate), (.tlsKey, tlsKey), (.plain, plain ? "true" : nil),
            (.trustedProxies, trustedProxies), (.metricsPort, metricsPort), (.metricsHost, metricsHost), (.store, store),
            (.storeAdmin, storeAdmin), (.writeKeys, writeKeys), (.readKeys, readKeys),
            (.adminKey, adminKey), (.timeZones, timeZones),
            (.postgresWriters, postgresWriters), (.maximumConnections, maximumConnections), (.maximumWaitingBytes, maximumWaitingBytes),
            (.deadlineFactor, deadlineFactor), (.logLevel, logLevel), (.logFormat, logFormat), (.config, config),
            (.unsafeAllowNonDurableStore, unsafeAllowNonDurableStore ? "true" : nil),
        ]
        return given.reduce(into: [:]) { flags, entry in flags[entry.0.name] = entry.1 }
    }
}

extension ArgumentHelp {
    static func setting(_ setting: ServerSetting) -> ArgumentHelp {
        let defaultText = setting.defaultText.map { " Default: \($0)." } ?? ""
        return ArgumentHelp("\(setting.help)\(defaultText) [\(setting.environmentName)]", valueName: setting.placeholder?.lowercased())
    }
}
