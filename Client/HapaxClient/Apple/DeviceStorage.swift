import Foundation

/// What Apple's systems are told about a queue's directory; what is made in it follows.
enum DeviceStorage {
    /// Does nothing elsewhere. If the system does not take it, the queue works all the same.
    static func mark(_ directory: String) {
        #if canImport(Darwin)
        // A copy of a queue that comes back, perhaps on a second device, would give sequences again (I7).
        var url = URL(fileURLWithPath: directory, isDirectory: true)
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        try? url.setResourceValues(values)
        #endif
        #if os(iOS)
        // An app that locks its files with the device could store nothing then, and that is when it enters the background
        // (https://developer.apple.com/documentation/uikit/encrypting-your-app-s-files).
        try? FileManager.default.setAttributes(
            [.protectionKey: FileProtectionType.completeUntilFirstUserAuthentication], ofItemAtPath: directory)
        #endif
    }
}
