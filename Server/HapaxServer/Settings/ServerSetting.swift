/// One thing that can be set about the server: by flag, by environment, or in the file.
struct ServerSetting: Sendable {
    /// Its name in the file, and after `--` as a flag.
    var name: String
    /// The placeholder of its value in the help; nil for a switch.
    var placeholder: String?
    var help: String
    var defaultText: String?
    /// Whether it may also be the content of the file that `HAPAX_…_FILE` names.
    var isSecret = false

    /// `write-keys` is `HAPAX_WRITE_KEYS` in the environment.
    var environmentName: String {
        "HAPAX_" + name.uppercased().map { $0 == "-" ? "_" : String($0) }.joined()
    }

    /// Of the file that holds a secret.
    var fileEnvironmentName: String { environmentName + "_FILE" }

    static let host = ServerSetting(
        name: "host", placeholder: "ADDRESS", help: "Address to listen on.", defaultText: "127.0.0.1")
    static let port = ServerSetting(
        name: "port", placeholder: "NUMBER", help: "Port to listen on; 0 picks a free one, which is printed.", defaultText: "8080")
    static let tlsCertificate = ServerSetting(
        name: "tls-certificate", placeholder: "FILE",
        help:
            "The certificate chain in PEM, the server's own first: with tls-key the server speaks TLS. A changed file is taken within seconds."
    )
    static let tlsKey = ServerSetting(name: "tls-key", placeholder: "FILE", help: "The private key of that certificate, in PEM.")
    static let plain = ServerSetting(
        name: "plain", placeholder: nil,
        help: "Speak plain HTTP on an address that other machines reach, because a proxy in front speaks TLS.")
    static let trustedProxies = ServerSetting(
        name: "trusted-proxies", placeholder: "LIST",
        help: "Addresses and networks (10.0.0.0/8), by commas, whose X-Forwarded-For is believed.")
    static let metricsPort = ServerSetting(
        name: "metrics-port", placeholder: "NUMBER",
        help: "Another port, with /metrics for everybody who reaches it and /health, and nothing else; 0 picks a free one.")
    static let metricsHost = ServerSetting(
        name: "metrics-host", placeholder: "ADDRESS", help: "Address of that port.", defaultText: "127.0.0.1")
    static let store = ServerSetting(
        name: "store", placeholder: "URI",
        help: "sqlite:PATH for a file of the server's own, or postgres://USER:PASSWORD@HOST:PORT/DATABASE.",
        defaultText: "sqlite:hapax-data/events.sqlite", isSecret: true)
    static let storeAdmin = ServerSetting(
        name: "store-admin", placeholder: "URI",
        help: "The same database under the role that owns its tables; then the role of --store needs only SELECT and INSERT.",
        isSecret: true)
    static let writeKeys = ServerSetting(
        name: "write-keys", placeholder: "LIST",
        help:
            "Who may write where: PROJECT=KEY, by commas, in addition to the keys in the store. The key demo is public and works on loopback only.",
        isSecret: true)
    static let readKeys = ServerSetting(
        name: "read-keys", placeholder: "LIST",
        help: "Who may read what a project has sent, over HTTP and on the page: PROJECT=KEY, several separated by commas.", isSecret: true)
    static let adminKey = ServerSetting(
        name: "admin-key", placeholder: "KEY", help: "Who may read /metrics and every project, and change projects and keys.",
        isSecret: true)
    static let timeZones = ServerSetting(
        name: "time-zones", placeholder: "LIST",
        help:
            "The zone of a project's days in reports: PROJECT=ZONE (Europe/Berlin), by commas. Others keep theirs, at first UTC."
    )
    static let postgresWriters = ServerSetting(
        name: "postgres-writers", placeholder: "NUMBER", help: "Sessions that commit at the same time, 1 to 16.", defaultText: "2")
    static let maximumConnections = ServerSetting(
        name: "maximum-connections", placeholder: "NUMBER",
        help: "The most connections at once; beyond them the one that is idle longest is closed.",
        defaultText: "10000")
    static let maximumWaitingBytes = ServerSetting(
        name: "maximum-waiting-bytes", placeholder: "BYTES",
        help: "Bodies that arrive, and again requests waiting to be stored; beyond it a request is answered 503.", defaultText: "67108864")
    static let deadlineFactor = ServerSetting(
        name: "deadline-factor", placeholder: "NUMBER",
        help: "How many times as long as usual a header, a body, an answer and an idle connection may take, 1 to 100: for slow links.",
        defaultText: "1")
    static let logLevel = ServerSetting(
        name: "log-level", placeholder: "LEVEL", help: "trace, debug, info, notice, warning, error or critical; to standard error.",
        defaultText: "info")
    static let logFormat = ServerSetting(
        name: "log-format", placeholder: "FORMAT", help: "text, or json: an object on each line.", defaultText: "text")
    static let config = ServerSetting(name: "config", placeholder: "FILE", help: "A JSON object with any of these settings by name.")
    static let unsafeAllowNonDurableStore = ServerSetting(
        name: "unsafe-allow-non-durable-store", placeholder: nil,
        help: "Run on a PostgreSQL whose settings let an acknowledged event be lost. For experiments only.")

    static let all = [
        host, port, tlsCertificate, tlsKey, plain, trustedProxies, metricsPort, metricsHost, store, storeAdmin, writeKeys, readKeys,
        adminKey, timeZones,
        postgresWriters, maximumConnections, maximumWaitingBytes, deadlineFactor,
        logLevel, logFormat,
        config,
        unsafeAllowNonDurableStore,
    ]
}
