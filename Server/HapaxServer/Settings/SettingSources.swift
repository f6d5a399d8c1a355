import Foundation

/// The sources of settings, each a text by name.
///
/// Not swift-configuration: its typed look-ups treat a value of another type (a list because of a comma, a number in a file) as absent, and a
/// store's address that silently becomes the default sends events into the wrong database.
package enum SettingSources {
    /// A setting that cannot be used. The description never holds a key or a connection string.
    package struct Problem: Error, CustomStringConvertible {
        package var description: String

        init(_ setting: ServerSetting, _ text: String) {
            description = "\(setting.environmentName) (--\(setting.name)) \(text)"
        }

        init(_ text: String) { description = text }
    }

    /// A JSON object with settings by name; strings, numbers and booleans are values.
    static func file(_ path: String) throws -> [String: String] {
        guard let data = FileManager.default.contents(atPath: path),
            let object = try? JSONSerialization.jsonObject(with: data) as? [String: Any]
        else { throw Problem(.config, "names a file that cannot be read as a JSON object") }
        return try object.reduce(into: [:]) { values, entry in
            guard let setting = ServerSetting.all.first(where: { $0.name == entry.key }), setting.name != ServerSetting.config.name else {
                throw Problem(.config, "names a file with the unknown setting \(entry.key)")
            }
            switch entry.value {
            case let text as String: values[setting.name] = text
            // To Foundation a boolean is a number as well; its type encoding tells them apart.
            case let number as NSNumber:
                let isBoolean = String(cString: number.objCType) == "c" || String(cString: number.objCType) == "B"
                values[setting.name] = isBoolean ? (number.boolValue ? "true" : "false") : number.stringValue
            default: throw Problem(setting, "must be a string, a number or a boolean in the file")
            }
        }
    }

    /// The secrets that stand in files of their own, as Docker and systemd give them.
    ///
    /// - Throws: ``Problem`` if one is given in both ways, or its file cannot be read.
    static func secrets(_ environment: [String: String]) throws -> [String: String] {
        try ServerSetting.all.filter(\.isSecret).reduce(into: [:]) { values, setting in
            guard let path = environment[setting.fileEnvironmentName], !path.isEmpty else { return }
            guard environment[setting.environmentName] ?? "" == "" else {
                throw Problem(setting, "is set twice: take \(setting.environmentName) or \(setting.fileEnvironmentName) away")
            }
            guard let data = FileManager.default.contents(atPath: path), let text = String(data: data, encoding: .utf8) else {
                throw Problem(setting, "cannot be read from the file that \(setting.fileEnvironmentName) names")
            }
            values[setting.name] = text.trimmingCharacters(in: .whitespacesAndNewlines)
            if values[setting.name] == "" { throw Problem(setting, "is empty in the file that \(setting.fileEnvironmentName) names") }
        }
    }

    /// Variables of the client, of the build, and of docker-compose.yml.
    private static let others = [
        "HAPAX_SERVER", "HAPAX_KEY", "HAPAX_READ_KEY", "HAPAX_QUEUE", "HAPAX_REPLACES", "HAPAX_STRICT", "HAPAX_PUBLISHED_PORT",
        "HAPAX_DOMAIN",

    ]

    /// `HAPAX_…` variables that no part of Hapax uses, sorted.
    static func unknownVariables(_ environment: [String: String]) -> [String] {
        let known = Set(
            ServerSetting.all.map(\.environmentName) + ServerSetting.all.filter(\.isSecret).map(\.fileEnvironmentName) + others)
        return environment.keys.filter { $0.hasPrefix("HAPAX_") && !known.contains($0) }.sorted()
    }
}
