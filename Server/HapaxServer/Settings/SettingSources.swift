import Foundation

/// Where settings come from, each as text by name.
///
/// Not swift-configuration: its typed look-ups take a value of another type (a list where a comma stands, a number in a file) for an
/// absent one, and a store's address that silently becomes the default sends events into the wrong database.
enum SettingSources {
    typealias Problem = ServerConfiguration.Problem

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
            // A boolean is a number to Foundation as well, so it is asked for by its encoding.
            case let number as NSNumber:
                let isBoolean = String(cString: number.objCType) == "c" || String(cString: number.objCType) == "B"
                values[setting.name] = isBoolean ? (number.boolValue ? "true" : "false") : number.stringValue
            default: throw Problem(setting, "must be a string, a number or a boolean in the file")
            }
        }
    }

    /// The client's, the build's, and that of docker-compose.yml.
    private static let others = [
        "HAPAX_SERVER", "HAPAX_KEY", "HAPAX_READ_KEY", "HAPAX_QUEUE", "HAPAX_REPLACES", "HAPAX_STRICT", "HAPAX_PUBLISHED_PORT",
    ]

    /// `HAPAX_…` variables that mean nothing to anybody.
    static func unknownVariables(_ environment: [String: String]) -> [String] {
        let known = Set(ServerSetting.all.map(\.environmentName) + others)
        return environment.keys.filter { $0.hasPrefix("HAPAX_") && !known.contains($0) }.sorted()
    }
}
