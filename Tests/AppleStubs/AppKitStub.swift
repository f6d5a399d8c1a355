import Foundation

/// As much of AppKit as the adapter uses.
@MainActor
public final class NSApplication {
    public nonisolated static let didFinishLaunchingNotification = NSNotification.Name("NSApplicationDidFinishLaunchingNotification")
    public nonisolated static let didBecomeActiveNotification = NSNotification.Name("NSApplicationDidBecomeActiveNotification")
    public nonisolated static let willResignActiveNotification = NSNotification.Name("NSApplicationWillResignActiveNotification")
    public nonisolated static let willTerminateNotification = NSNotification.Name("NSApplicationWillTerminateNotification")

    public var isActive = false

    public init() {}
}
