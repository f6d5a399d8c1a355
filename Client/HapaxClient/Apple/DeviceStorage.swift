import Foundation

/// Attributes of a queue's files on Apple's systems. Does nothing elsewhere; where the system does not take it, the queue works all the same.
enum DeviceStorage {
    /// An app that has its files locked with the device could store nothing then, and that is when it enters the background
    /// (https://developer.apple.com/documentation/uikit/encrypting-your-app-s-files). What is made in the directory follows.
    static func keepOpen(_ directory: String) {
        #if os(iOS)
        try? FileManager.default.setAttributes(
            [.protectionKey: FileProtectionType.completeUntilFirstUserAuthentication], ofItemAtPath: directory)
        #endif
    }

    /// For what is of no use on another device.
    static func excludeFromBackup(_ file: String) {
        #if canImport(Darwin)
        var url = URL(fileURLWithPath: file)
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        try? url.setResourceValues(values)
        #endif
    }
}
