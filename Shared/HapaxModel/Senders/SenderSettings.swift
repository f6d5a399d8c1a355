/// What SDKs in pages ask for before they send: their settings, and flags. Each gets the least that it starts with; nothing is remotely set here.
package enum SenderSettings: Sendable, CaseIterable {
    /// Segment's script, which sends where the answer says.
    case segment
    case rudder
    case posthog
    /// The same as a script.
    case posthogScript
    case posthogFlags
    case posthogDecide

    /// With the key in braces where it stands there; a shorter path without one has it in the query, or needs none.
    package var path: String {
        switch self {
        case .segment: "/v1/projects/{key}/settings"
        case .rudder: "/sourceConfig"
        case .posthog: "/array/{key}/config"
        case .posthogScript: "/array/{key}/config.js"
        case .posthogFlags: "/flags"
        case .posthogDecide: "/decide"
        }
    }

    package var isPost: Bool { self == .posthogFlags || self == .posthogDecide }

    package var type: String { self == .posthogScript ? "text/javascript" : "application/json" }

    /// The parameter that holds the key; nil if it stands in the path, or is not asked for.
    package var keyParameter: String? { self == .rudder ? "writeKey" : nil }

    /// Whether a path is one of these.
    package static func isPath(_ path: Substring) -> Bool {
        let parts = path.split(separator: "/", maxSplits: 4)
        return allCases.contains { settings in
            let pattern = settings.path.split(separator: "/")
            return pattern.count == parts.count && zip(pattern, parts).allSatisfy { $0 == $1 || $0 == "{key}" }
        }
    }

    /// - Parameters:
    ///   - host: How the asker reaches this server, without a scheme.
    /// - Returns: Of ``type``.
    package func answer(key: String, host: String, isSecure: Bool) -> [UInt8] {
        var writer = JSONWriter()
        if self == .posthogScript {
            writer.raw("window._POSTHOG_REMOTE_CONFIG=")
            writer.object { writer in
                writer.member(named: key)
                writer.object { writer in
                    writer.member(named: "config")
                    writer.raw(SenderSettings.posthog.answer(key: key, host: host, isSecure: isSecure))
                }
            }
            return writer.bytes
        }
        writer.object { writer in
            switch self {
            case .segment:
                writer.member("integrations") { writer in
                    writer.member("Segment.io") { writer in
                        writer.member("apiKey", key)
                        writer.member("apiHost", host + "/v1")
                        writer.member("protocol", isSecure ? "https" : "http")
                    }
                }
                writer.member("plan") { _ in }
                writer.member("metrics") { $0.member("sampleRate", 0) }
            case .rudder:
                writer.member("source") { writer in
                    for name in ["id", "name", "workspaceId"] {
                        writer.member(named: name)
                        writer.string("hapax")
                    }
                    writer.member("enabled", true)
                    writer.member("config") { _ in }
                    writer.member("destinations", list: [Int]()) { $0.integer($1) }
                }
            case .posthog, .posthogScript:
                writer.member("supportedCompression", list: ["gzip", "gzip-js"]) { $0.string($1) }
                for name in [
                    // Whatever is said of surveys, it asks for their script.
                    "hasFeatureFlags", "sessionRecording", "heatmaps", "capturePerformance", "captureDeadClicks", "autocaptureExceptions",
                ] {
                    writer.member(named: name)
                    writer.raw("false")
                }
                writer.member("siteApps", list: [Int]()) { $0.integer($1) }
                writer.member("analytics") { $0.member("endpoint", "/i/v0/e/") }
            case .posthogFlags, .posthogDecide:
                writer.member("flags") { _ in }
                writer.member("featureFlags") { _ in }
                writer.member("featureFlagPayloads") { _ in }
                writer.member("errorsWhileComputingFlags", false)
            }
        }
        return writer.bytes
    }
}
