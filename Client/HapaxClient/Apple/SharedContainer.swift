import Foundation

/// Containers that several apps share.
///
/// iOS kills an app that it suspends while it holds a file lock in one (0xdead10cc), and a client holds its queue's for as long as it
/// lives. It cannot let go of it while it is suspended: another process could take the queue meanwhile and send the same rows.
enum SharedContainer {
    #if os(iOS) || os(tvOS) || os(visionOS)
    static let isRefused = true
    #else
    static let isRefused = false
    #endif

    /// Where iOS, and its simulator, keep the containers of app groups.
    private static let components = ["Containers", "Shared", "AppGroup"]

    /// - Parameter path: Of a file or directory, which need not exist.
    static func holds(_ path: String) -> Bool {
        let parts = URL(fileURLWithPath: path).standardizedFileURL.resolvingSymlinksInPath().pathComponents
        return parts.indices.contains { parts[$0...].starts(with: components) }
    }
}
