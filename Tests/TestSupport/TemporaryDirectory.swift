import Foundation

/// A new directory that is removed, with all it holds, when the last reference goes.
///
/// If the test process is killed first, ``LastWill`` removes it. One that cannot be made shows at its first use.
package final class TemporaryDirectory: Sendable {
    package let url: URL
    private let will: LastWill.Entry?

    package init(_ label: String = "test") {
        let name = "hapax-\(label)-\(UUID().uuidString.prefix(13))"
        url = FileManager.default.temporaryDirectory.appending(path: name, directoryHint: .isDirectory)
        try? FileManager.default.createDirectory(at: url, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        will = try? LastWill.shared.add("rm -rf \(LastWill.quoted(url.path))")
    }

    package var path: String { url.path }

    /// The path of something inside.
    package func path(_ component: String) -> String {
        url.appending(path: component).path
    }

    deinit {
        try? FileManager.default.removeItem(at: url)
        if let will { LastWill.shared.remove(will) }
    }
}
