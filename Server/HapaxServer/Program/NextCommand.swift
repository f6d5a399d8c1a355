import Foundation

/// What a newcomer types next, in another terminal: it finds the command beside this program, and sends with the public keys.
enum NextCommand {
    /// - Parameters:
    ///   - program: As this program was started.
    ///   - address: Where it listens.
    static func text(program: String, address: String) -> String {
        let folder = URL(filePath: program).deletingLastPathComponent().standardizedFileURL.path
        let quoted = "'\(folder.replacing("'", with: "'\\''"))'"
        let path = program.contains("/") ? "PATH=\(quoted):\"$PATH\" " : ""
        let keys = "HAPAX_KEY=\(StaticKeys.demoWriteKey) HAPAX_READ_KEY=\(StaticKeys.demoReadKey)"
        return "export \(path)HAPAX_SERVER=\(address) \(keys); hapax track hello"
    }
}
