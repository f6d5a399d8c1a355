import Foundation
import HapaxModel

/// What is known about the machine and the app without configuration (R57). What is not known is left out.
enum AutomaticProperties {
    static let libraryVersion = HapaxVersion.current

    /// - Parameters:
    ///   - bundle: What the app says about itself, if no version is given.
    ///   - firmware: Where the kernel shows what the firmware says about the machine (SMBIOS); on Linux, and in few containers.
    static func collect(
        appVersion: String?, bundle: [String: Any]? = Bundle.main.infoDictionary, firmware: String = "/sys/class/dmi/id"
    ) -> Properties {
        var properties: Properties = ["$lib": "hapax-swift", "$lib_version": libraryVersion]
        properties["$os"] = operatingSystem
        properties["$os_version"] = operatingSystemVersion
        set("$app_version", appVersion ?? bundle?["CFBundleShortVersionString"] as? String)
        set("$model", model(firmware))
        set("$manufacturer", manufacturer(firmware))
        return properties

        func set(_ key: String, _ value: String?) {
            if let value, !value.isEmpty { properties[key] = value }
        }
    }

    private static var operatingSystem: String {
        #if os(iOS)
        "iOS"
        #elseif os(tvOS)
        "tvOS"
        #elseif os(watchOS)
        "watchOS"
        #elseif os(visionOS)
        "visionOS"
        #elseif os(macOS)
        "macOS"
        #elseif os(Linux)
        "Linux"
        #else
        "other"
        #endif
    }

    private static var operatingSystemVersion: String {
        #if canImport(Darwin)
        // The text that Foundation has ready is in the user's language.
        let version = ProcessInfo.processInfo.operatingSystemVersion
        return "\(version.majorVersion).\(version.minorVersion).\(version.patchVersion)"
        #else
        return ProcessInfo.processInfo.operatingSystemVersionString
        #endif
    }

    #if os(Linux)
    private static func model(_ firmware: String) -> String? { text(firmware + "/product_name") }
    private static func manufacturer(_ firmware: String) -> String? { text(firmware + "/sys_vendor") }

    private static func text(_ path: String) -> String? {
        guard let file = FileHandle(forReadingAtPath: path),
            let bytes = try? file.read(upToCount: EventLimits.maximumNameBytes)
        else { return nil }
        return String(decoding: bytes, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
    }
    #else
    private static func manufacturer(_ firmware: String) -> String? { "Apple" }

    private static func model(_ firmware: String) -> String? {
        #if os(macOS) || targetEnvironment(macCatalyst)
        let name = "hw.model"
        #else
        let name = "hw.machine"
        #endif
        var bytes = [UInt8](repeating: 0, count: 256)
        var length = bytes.count
        guard sysctlbyname(name, &bytes, &length, nil, 0) == 0 else { return nil }
        return String(decoding: bytes.prefix(length).prefix { $0 != 0 }, as: UTF8.self)
    }
    #endif
}
