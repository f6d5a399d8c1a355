import CoreMetrics
import Foundation
import HapaxModel
import Logging

extension EventClient {
    /// What a client needs to know. Server and key have no defaults; everything else does.
    public struct Configuration: Sendable {
        /// The server's base URL, `http` or `https`; events go to `v1/events` below it.
        public var server: URL
        /// The project's write key.
        public var writeKey: String
        /// Servers and write keys that this client's replace: what still waits for them in the directory is sent to this one. Files of others
        /// are left alone.
        public var replaces: [Destination] = []
        /// The same by the names that a directory has for them, as a command's user reads them there.
        package var replacedDestinations: Set<EventID> = []
        /// Where events wait, and how many may.
        public var queue: QueueSettings
        /// When events are uploaded; ``EventClient/updateUploads(_:)`` changes it later.
        public var uploads = UploadSettings()
        /// Whom events concern that do not say it themselves while nobody is logged in; nil stands for the install's anonymous id. For services: in an
        /// app it would be whoever comes after a ``EventClient/reset()`` as well, which is warned of.
        public var distinctID: String?
        /// The anonymous id at the first start in a directory, as the one that another SDK has given this device; nil has one made. Later starts do
        /// not look at it, and ``EventClient/reset()`` replaces it. One that no event may have (1…200 bytes, no U+0000) is left aside, with a warning.
        public var anonymousID: String?
        /// What the user has agreed to, where no consent has been set yet (``EventClient/setConsent(_:)``); kept from the first start on.
        public var consent = Consent.granted
        /// Whether this is an app, which has one user at a time: then each event has a session (``EventClient/sessionID``), and
        /// ``EventClient/commonProperties`` are kept for later runs, and nothing is uploaded by itself before the client is attached to it, or ten
        /// seconds have passed without that. On Apple's systems for what is in a bundle, elsewhere not.
        public var isApp = Self.isAppByDefault
        /// What events say of device and app by themselves.
        public var automatic = AutomaticSettings()
        /// Change or drop events before they are stored, one after the other.
        public var enrichers: [EventClient.Enricher] = []
        /// What the device is connected by at the moment, nil for nothing; asked often, on any thread, and must answer at once. By default
        /// what the system reports on Apple's platforms, `wired` elsewhere.
        public var network: @Sendable () -> NetworkType? = Self.standardNetwork
        /// Events of the first request, 1…1000. Later ones hold more, up to 1000 and 512 KiB, as long as they are
        /// answered within a third of ``requestTimeout``, and fewer where the link is too slow or a proxy refuses them.
        public var batchSize = 50
        package var batchSizeGrows = true
        /// The deadline of one request, from connecting to the answer's last byte.
        public var requestTimeout: Duration = .seconds(30)
        /// How long `run()` of HapaxClientService delivers at most after a graceful shutdown; what is left stays on disk for the next run. Less than
        /// what a supervisor grants before it kills.
        public var drainTime: Duration = .seconds(8)
        /// For development.
        public var debug = DebugSettings()
        /// Where failures are logged: statuses and causes, never events or keys. By default warnings and errors go where swift-log sends them, which is
        /// standard error unless the app says otherwise (`LoggingSystem.bootstrap`); nil for nowhere.
        public var logger: Logger? = Self.standardLogger
        /// Where the client counts, see docs/operations.md for the labels; nil stands for the factory that `MetricsSystem` has when the client
        /// starts. Clients of one factory share its counters, and overwrite each other's gauges.
        public var metricsFactory: (any MetricsFactory)?
        /// Each event's JSON once it is stored, on the client's own thread, for tests.
        package var onStored: (@Sendable ([UInt8]) -> Void)?

        /// Nothing is checked before ``EventClient/start(_:)``.
        public init(server: URL, writeKey: String, queueDirectory: URL = Self.standardQueueDirectory) {
            self.server = server
            self.writeKey = writeKey
            queue = QueueSettings(directory: queueDirectory)
        }

        /// From `HAPAX_SERVER`, `HAPAX_KEY` or `HAPAX_KEY_FILE`, and `HAPAX_QUEUE`, as the command line has them; the last one stands for the
        /// directory and may be missing. What is empty counts as missing.
        ///
        /// - Returns: nil if neither server nor key is there, as where a service runs without events: ``EventClient/init(_:logger:)`` takes that.
        /// - Throws: ``StartError``: only one of them is there, the key's file cannot be read, or what is there is no URL or no key. A service that
        ///   ends with it is one that nobody has to find out about by its refusals.
        public init?(environment: [String: String] = ProcessInfo.processInfo.environment) throws(StartError) {
            let values = environment.filter { !$0.value.isEmpty }
            switch (values["HAPAX_SERVER"], try Self.writeKey(environment)) {
            case (nil, nil): return nil
            case (nil, _): throw .missing("HAPAX_SERVER")
            case (_, nil): throw .missing("HAPAX_KEY")
            case (let server?, let key?):
                self.init(server: Self.url(server), writeKey: key)
                if let path = values["HAPAX_QUEUE"] { queue.directory = URL(filePath: path, directoryHint: .isDirectory) }
                _ = try endpoint()
            }
        }

        /// `HAPAX_KEY`, or what is in the file that `HAPAX_KEY_FILE` names, as Docker and systemd give secrets; nil if neither is set.
        package static func writeKey(_ environment: [String: String]) throws(StartError) -> String? {
            let key = environment["HAPAX_KEY"].flatMap { $0.isEmpty ? nil : $0 }
            guard let path = environment["HAPAX_KEY_FILE"], !path.isEmpty else { return key }
            guard key == nil else { throw .keySetTwice }
            do {
                let text = try String(contentsOf: URL(filePath: path), encoding: .utf8)
                return text.trimmingCharacters(in: .whitespacesAndNewlines)
            } catch {
                throw .keyFile(StorageFailure(error))
            }
        }

        static var standardLogger: Logger {
            var logger = Logger(label: "hapax")
            logger.logLevel = .warning
            return logger
        }

        /// From texts, as of a command's arguments: one that is no URL is refused when the client starts. A command says itself what is wrong.
        package init(server: String, writeKey: String, queueDirectory: String) {
            self.init(
                server: Self.url(server), writeKey: writeKey, queueDirectory: URL(filePath: queueDirectory, directoryHint: .isDirectory))
            logger = nil
        }

        /// A file's URL, which no server has, for what is none.
        package static func url(_ text: String) -> URL {
            // Foundation escapes other characters, on newer systems only.
            (text.utf8.allSatisfy { (0x21...0x7E).contains($0) } ? URL(string: text) : nil) ?? URL(filePath: "/")
        }

        private static var isAppByDefault: Bool {
            #if canImport(Darwin)
            return Bundle.main.bundleIdentifier != nil
            #else
            return false
            #endif
        }

        /// On Apple's systems `hapax` below the bundle's identifier in Application Support (tvOS: Caches), or below the executable's name if
        /// there is no bundle. Elsewhere `hapax` in the first of `$STATE_DIRECTORY` (which systemd sets), `$XDG_STATE_HOME`, and `.local/state` in the home
        /// directory; that is the command line's as well.
        public static var standardQueueDirectory: URL {
            #if canImport(Darwin)
            let directory = directoryOfProgram(Bundle.main.bundleIdentifier, executable: Bundle.main.executableURL?.lastPathComponent)
            #if os(tvOS)
            // The only place that an app may write to there; the system may empty it.
            let base = URL.cachesDirectory
            #else
            let base = URL.applicationSupportDirectory
            #endif
            return base.appending(path: directory, directoryHint: .isDirectory)
            #else
            return commandQueueDirectory
            #endif
        }

        /// Without a sandbox all of a user's apps have one Application Support.
        static func directoryOfProgram(_ bundleIdentifier: String?, executable: String?) -> String {
            [bundleIdentifier, executable, "program"].compactMap(\.self).first { !$0.isEmpty }.map { $0 + "/hapax" } ?? "hapax"
        }

        #if os(macOS) || !canImport(Darwin)
        /// The command line's.
        package static var commandQueueDirectory: URL {
            (stateDirectory ?? home.appending(path: ".local/state")).appending(path: "hapax", directoryHint: .isDirectory)
        }

        /// The home directory, if the command line's directory would be below it and it does not exist: then somebody has set it so that nothing
        /// is stored there.
        package static var missingHome: String? {
            stateDirectory == nil && !FileManager.default.fileExists(atPath: home.path) ? home.path : nil
        }

        private static var stateDirectory: URL? {
            let environment = ProcessInfo.processInfo.environment
            // One that is not absolute is to be ignored (https://specifications.freedesktop.org/basedir-spec/latest/#basics).
            let state = ["STATE_DIRECTORY", "XDG_STATE_HOME"].compactMap { environment[$0] }.first { $0.hasPrefix("/") }
            // systemd separates several by colons (https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#RuntimeDirectory=).
            let first = state?.split(separator: ":").first.map { URL(filePath: String($0), directoryHint: .isDirectory) }
            return first
        }

        private static var home: URL {
            ProcessInfo.processInfo.environment["HOME"].flatMap { $0.isEmpty ? nil : URL(filePath: $0, directoryHint: .isDirectory) }
                ?? FileManager.default.homeDirectoryForCurrentUser
        }
        #endif
    }

    /// Where events go.
    public struct Destination: Hashable, Sendable {
        /// The server's base URL.
        public var server: URL
        /// The project's write key.
        public var writeKey: String

        /// Takes what it is given.
        public init(server: URL, writeKey: String) {
            self.server = server
            self.writeKey = writeKey
        }
    }
}

/// Why a client could not start. Nothing has been changed.
public enum StartError: Error, Hashable, Sendable {
    /// ``EventClient/shared`` has no configuration yet: ``EventClient/bootstrap(_:)`` gives it one.
    case notBootstrapped
    /// Not `http://host…` or `https://host…`, or with a user, a query, a fragment or a port outside 1…65535; an
    /// international name has to be in its ASCII form (`xn--`).
    case malformedURL
    /// Empty, or holds something that cannot stand in a header field.
    case invalidKey
    /// ``EventClient/Configuration/distinctID`` is empty, longer than 200 bytes, or holds U+0000: each event would be a dead letter.
    case invalidDistinctID
    /// This variable of the environment is not set, though the other one of server and key is.
    case missing(String)
    /// `HAPAX_KEY` and `HAPAX_KEY_FILE` are both set.
    case keySetTwice
    /// The file that `HAPAX_KEY_FILE` names cannot be read.
    case keyFile(StorageFailure)
    /// On iOS: the queue's directory is in a container that apps share, where the system kills an app that it suspends while it holds a lock.
    case sharedContainer
    /// The directory or its files cannot be made, read or locked, or an earlier or a newer version made them; then they are left untouched.
    case queueUnusable(StorageFailure)
    /// A file of the directory that says what the user has agreed to, or whom events concern, is there and cannot be read, as another user's. Setting
    /// the consent writes that file anew.
    case unreadable(StorageFailure)

    /// Whether the same configuration may start another time.
    package var mayPass: Bool {
        switch self {
        case .queueUnusable, .unreadable: true
        case .notBootstrapped, .malformedURL, .invalidKey, .invalidDistinctID, .missing, .keySetTwice, .keyFile, .sharedContainer: false
        }
    }
}

extension StartError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .notBootstrapped: "EventClient.shared has no configuration: call EventClient.bootstrap(configuration) first"
        case .malformedURL: "the server's URL must be http://host or https://host in visible ASCII, without user, query and fragment"
        case .invalidDistinctID: "the configuration's distinctID must have 1 to 200 bytes, none of them U+0000"
        case .invalidKey: "the write key is empty or holds characters other than visible ASCII"
        case .missing(let variable): "\(variable) is not set"
        case .keySetTwice: "the write key is set twice: take HAPAX_KEY or HAPAX_KEY_FILE away"
        case .keyFile(let failure): "the file that HAPAX_KEY_FILE names cannot be read: \(failure)"
        case .sharedContainer: "the queue's directory is in a container that apps share: use the app's own"
        case .queueUnusable(let failure): "the queue cannot be used: \(failure)"
        case .unreadable(let failure): "\(failure); give it to the directory's owner, or say anew what it said (hapax identity)"
        }
    }
}

extension EventClient.Configuration {
    func checkDirectory(refusingSharedContainers isRefused: Bool) throws(StartError) {
        // The working directory itself is what comes of a setting that is empty.
        let directory = queue.directory
        if !directory.isFileURL || directory.relativePath == "." { throw .queueUnusable(StorageFailure(errno: ENOENT)) }
        #if os(macOS) || !canImport(Darwin)
        if Self.missingHome != nil, directory == Self.commandQueueDirectory { throw .queueUnusable(StorageFailure(errno: ENOENT)) }
        #endif
        if isRefused && SharedContainer.holds(directory.path) { throw .sharedContainer }
    }

    /// Settings that look as if they said who the user is.
    func warnOfIdentity() {
        if isApp, distinctID != nil {
            logger?.warning(
                "configuration.distinctID is a service's: in an app the next person has it, too, after reset(). Who is logged in says identify(_:), who the device was before configuration.anonymousID"
            )
        }
        if let anonymousID, !Identity.isValid(anonymousID) {
            logger?.warning("configuration.anonymousID has not 1 to 200 bytes, or holds U+0000, and is left aside")
        }
    }

    /// Whose files in the directory are sent.
    package func destinations() throws(StartError) -> Set<EventID> {
        var all = try endpoint().destinations.union(replacedDestinations)
        for replaced in replaces {
            var configuration = self
            (configuration.server, configuration.writeKey) = (replaced.server, replaced.writeKey)
            all.formUnion(try configuration.endpoint().destinations)
        }
        return all
    }

    package func endpoint() throws(StartError) -> Endpoint {
        var url = server.absoluteString
        guard let parts = URLComponents(string: url), let scheme = parts.scheme?.lowercased(), scheme == "http" || scheme == "https",
            let host = parts.host, !host.isEmpty, parts.user == nil, parts.password == nil, parts.query == nil, parts.fragment == nil,
            (1...65_535).contains(parts.port ?? (parts.rangeOfPort?.isEmpty == false ? 0 : 1)),
            url.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
        else { throw .malformedURL }
        if let id = distinctID?.utf8, !(1...EventLimits.maximumDistinctIDBytes).contains(id.count) || id.contains(0) {
            throw .invalidDistinctID
        }
        guard !writeKey.isEmpty, writeKey.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else { throw .invalidKey }
        while url.hasSuffix("/") { url.removeLast() }
        return Endpoint(
            url: url + "/v1/events", key: writeKey,
            batchSize: debug.isOn ? 1 : min(max(batchSize, 1), EventLimits.maximumEventsPerBatch),
            batchSizeGrows: batchSizeGrows && !debug.isOn, timeout: requestTimeout)
    }
}
