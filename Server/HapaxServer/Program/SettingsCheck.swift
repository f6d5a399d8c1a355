import Foundation
import HapaxModel

/// What can be said of the settings and the files that they name, without the store.
@available(macOS 14, *)
struct SettingsCheck {
    let configuration: ServerConfiguration
    let flags: [String: String]
    let environment: [String: String]
    /// Unix milliseconds.
    let now: Int64

    func findings() -> [Finding] { [settings] + unknown + fixedKeys + secrets + certificate + [zones] }

    private var settings: Finding {
        let store = if case .sqlite(let path) = configuration.store { "the file \(path)" } else { "PostgreSQL" }
        let isTLS = configuration.options.certificate != nil
        return .ok("settings", "\(configuration.options.host):\(configuration.options.port), \(isTLS ? "TLS" : "plain HTTP"), \(store)")
    }

    private var unknown: [Finding] {
        configuration.unknownVariables.map { .warn("settings", "\($0) looks like a setting and is none", help: "hapax-server --help") }
    }

    private var fixedKeys: [Finding] {
        let count = configuration.writeKeys.count + configuration.readKeys.count + (configuration.adminKey == nil ? 0 : 1)
        guard count > 0 else { return [] }
        let text = "\(count == 1 ? "a key stands" : "\(count) keys stand") in the settings and can be changed by a restart only"
        return [.warn("static keys", text, help: "hapax-server keys add, then take \(count == 1 ? "it" : "them") out")]
    }

    private var secrets: [Finding] {
        let named = ServerSetting.all.filter(\.isSecret).compactMap { environment[$0.fileEnvironmentName] }
        let config = flags[ServerSetting.config.name] ?? environment[ServerSetting.config.environmentName]
        let files = (named + [config, configuration.options.certificate?.key].compactMap { $0 }).filter { !$0.isEmpty }
        let open = files.filter { path in
            let mode = (try? FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? NSNumber)?.intValue ?? 0
            return mode & 0o007 != 0
        }
        if files.isEmpty { return [] }
        if open.isEmpty { return [.ok("secrets", "\(files.count == 1 ? "one file" : "\(files.count) files"), not for everybody")] }
        return open.map { .warn("secrets", "everybody on this machine may read \($0)", help: "chmod o-rwx \($0)") }
    }

    private var certificate: [Finding] {
        guard let files = configuration.options.certificate else { return [] }
        do {
            let certificate = try Certificate(files)
            let end = certificate.end
            let day = Timestamp(clampingUnixMilliseconds: end).description.prefix(10)
            let days = (end - now) / 86_400_000
            if end <= now {
                return [.fail("certificate", "it ended on \(day)", help: "renew it; the server takes the new files by itself")]
            }
            if days < 14 { return [.warn("certificate", "it ends on \(day)", help: "renew it; the server takes the new files by itself")] }
            if certificate.isAlone {
                return [
                    .warn(
                        "certificate", "good until \(day), but alone in its file, and issued by somebody else",
                        help:
                            "let the certificates that lead to its authority follow it (fullchain.pem); without them clients may refuse it")
                ]
            }
            return [.ok("certificate", "good until \(day)")]
        } catch {
            return [.fail("certificate", "\(error)")]
        }
    }

    private var zones: Finding {
        let (used, newer) = ReportZone.databaseVersion()
        guard let newer else { return .ok("time zones", "rules of \(used)") }
        return .warn(
            "time zones", "this program has the rules of \(used), the system those of \(newer)",
            help: "if your zones have changed since, build with a newer Swift")
    }
}
